#pragma once
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tandem/pipeline/executor.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// Answers of a task whose model is cut into the stages of a pipeline: forwards alone. Batches follow each other, so
/// that most stages work most of the time; each passes as a whole, so that the results have the bits of one device.
class StageInference {
 public:
  using Answers = train::Task::Answers;
  using Question = train::Task::Question;

  struct Model {
    std::vector<int> rank_of;  // of each stage
    int64_t dim = 0;           // of the features
    at::ScalarType type = at::kFloat;
    std::function<memory::Chain(int stage)> chain;  // to the features
    bool divides_head = false;                      // the classifier is divided over all ranks along the pipeline
    /// Called where the last stage is, or if the classifier is divided on all ranks, with the features of a batch and
    /// the samples of each rank.
    std::function<Answers(const Tensor& features, const data::Batch& batch, Question question, int64_t k,
                          std::span<const int64_t> sizes)>
        answers;
  };

  /// The group, of the ranks along the pipeline, must outlive this object.
  StageInference(Model model, comm::ProcessGroup& group) : model_(std::move(model)), group_(group) {}

  /// Task::answer(). Up to twice as many batches as ranks follow each other: of so many at most are outputs of a stage
  /// under way, in nobody's books.
  void answer(const train::Task::Batches& batches, Question question, int64_t k, const train::Task::Use& use);

  /// For one batch.
  Answers answer(const data::Batch& batch, Question question, int64_t k, std::span<const int64_t> sizes);

 private:
  class BatchStages;

  void answer_some(const train::Task::Batches& batches, Question question, int64_t k, const train::Task::Use& use);
  void share(Answers& answers, const data::Batch& batch, Question question, int64_t k, std::span<const int64_t> sizes);
  Tensor shared(const Tensor& value, at::IntArrayRef sizes, at::ScalarType type);

  Model model_;
  comm::ProcessGroup& group_;
  std::map<int64_t, std::unique_ptr<pipeline::Executor>> executors_;  // by the number of batches
};

}  // namespace tandem::job
