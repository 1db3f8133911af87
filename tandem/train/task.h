#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/ranking.h"
#include "tandem/base/rows.h"
#include "tandem/data/dataset.h"
#include "tandem/memory/chain.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

struct BatchPart;
class DividedHead;

struct RowParameter {
  std::string name;                // in Task::parameters()
  bool steps_in_backward = false;  // updated in blocks of rows, without a gradient of the whole
  bool moves_all_rows = false;     // also rows without a gradient, see Optimizer::move_all_rows()
};

/// What SupervisedStep trains on one rank: a model with its loss. A task knows nothing of files or schedules. Batches
/// are CPU tensors, and so are features and classes; the task decides on which device it computes them.
class Task {
 public:
  virtual ~Task() = default;

  /// Called before step `step`, which is counted from 0 over all runs of the job.
  virtual void begin_step(int64_t step) {}

  /// Returns the mean loss over the global batch (or over a micro-batch of all ranks), equal on all ranks, or this
  /// rank's term of it; see summed_along(). Each rank's gradients of replicated parameters are terms of a sum over the
  /// ranks. `sizes`: number of samples of each rank that shares the batch. Collective.
  virtual Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) = 0;

  /// The axes of the mesh along which the loss is the sum of what ranks return: none if loss() is equal on all.
  virtual parallel::Axes summed_along() const { return {}; }

  /// From now on the ranks need not make their steps together: loss() sends nothing, and returns this rank's term of
  /// the mean over the global batch, in which a sample that a target leaves out counts as 0: summed_along() the axes of
  /// a batch. Throws SettingsError, naming `staleness`, if the loss of a rank needs the samples of others.
  virtual void run_apart();

  /// The same as blocks, from the images to the loss, of which loss() runs each. Whoever runs it does so before the
  /// batch ends. By default one block.
  virtual memory::Chain chain(const data::Batch& batch, std::span<const int64_t> sizes);

  /// The same, cut into the stages of a pipeline that this rank holds, in the order of the model: the first stage of
  /// all begins with the images, the last ends with the loss. By default one.
  virtual std::vector<memory::Chain> stages(const data::Batch& batch, std::span<const int64_t> sizes) {
    return {chain(batch, sizes)};
  }

  /// The classifier for the micro-batches of a step, where it is divided over all ranks of the pipeline: the last stage
  /// then ends with the features. `scale`: factor of the loss's gradients; `is_imagined`: nothing is sent. null: the
  /// last stage has it.
  virtual std::unique_ptr<DividedHead> divided_head(const std::vector<BatchPart>& parts, double scale,
                                                    bool is_imagined);

  /// The axes over whose ranks the loss of a divided classifier is a sum of their terms, besides that of the pipeline.
  virtual parallel::Axes divided_along() const { return {}; }

  /// Tensors that lie in memory as those which the stages take, for a batch of the size of `batch`; without values.
  virtual std::vector<memory::Flow> stage_inputs(const data::Batch& batch) { return {{batch.images}}; }

  /// Returns the features of this rank's samples, [n, D], without gradient, on the CPU. Not collective, but over the
  /// ranks that share out the model.
  virtual Tensor embed(const data::Batch& batch) = 0;

  /// What a test asks of a batch: the k best classes of each of this rank's samples, on the CPU, and the loss, as
  /// loss() returns it.
  struct Answers {
    Ranking best;
    Tensor loss;
    Tensor features = {};  // if answer() was asked for them
  };
  /// Collective.
  virtual Answers evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) = 0;

  /// Batches, one after the other, as all ranks that share out the model take them.
  struct Batches {
    int64_t count = 0;
    std::function<data::Batch()> next;
    std::function<std::vector<int64_t>(const data::Batch& batch)> sizes;  // samples of each rank
  };
  enum class Question : uint8_t { scores, classes, features };  // those of evaluate(), predict() or embed()
  using Use = std::function<void(const data::Batch& batch, const Answers& answers)>;

  /// Answers a question for each batch, in their order: as one by one, but some may be under way at once, and `use` may
  /// get batches without their images. Collective.
  virtual void answer(const Batches& batches, Question question, int64_t k, const Use& use);

  /// Allocates what evaluate() would, in a group of imagined ranks.
  virtual void rehearse_test(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) {
    evaluate(batch, k, sizes);
  }

  /// The k best classes alone. By default those of evaluate(), whose loss is dropped. Collective.
  virtual Ranking predict(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) {
    return evaluate(batch, k, sizes).best;
  }

  /// If `training`, batch statistics are updated; otherwise they are used as they are.
  virtual void set_training(bool training) = 0;

  /// The blocks of the replicated parameters, from where this object runs them in training and tests: a strategy may
  /// replace what they run (parallel/strategy.h). null: it has none.
  virtual memory::Chain* replicated_chain() { return nullptr; }

  virtual std::vector<Parameter> parameters() const = 0;

  /// What forward changes, such as running statistics. Of the ranks that hold one alike, the values of the first are
  /// used.
  virtual std::vector<Parameter> buffers() const = 0;

  /// Parameters, then buffers: everything that a trained model consists of.
  std::vector<Parameter> weights() const;

  /// The parameter that is updated by rows; nullopt: all parameters are updated as a whole.
  virtual std::optional<RowParameter> row_parameter() const { return std::nullopt; }

  /// Called before each training step if row_parameter() returns a parameter. If `update` is set, the task must pass it
  /// the gradient block by block during backward, and the parameter has no gradient afterwards; if `update` is empty,
  /// the parameter gets a gradient. The task must call `read` with the rows that the loss is about to read. After the
  /// step both are reset to empty functions; the old ones must not be called any more.
  virtual void set_row_hooks(RowUpdate update, RowsRead read) {}
};

}  // namespace tandem::train
