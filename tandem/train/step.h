#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/ranking.h"
#include "tandem/comm/collectives.h"
#include "tandem/data/loader.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/pipeline/simulation.h"
#include "tandem/storage/fields.h"
#include "tandem/train/parameter.h"
#include "tandem/train/scores.h"

namespace tandem::train {

/// What a step did.
struct Reading {
  std::optional<double> loss;  // of the whole batch, equal on all ranks; nullopt: the step was skipped
  /// Index in Step::state() of a weight whose gradient was not finite on this rank. The state has changed all the same.
  std::optional<int64_t> fault;
  std::optional<NonFiniteError> skipped;  // why the step changed nothing; the same on all ranks
  bool is_left_out = false;               // its loss was scaled too much: it changed nothing but the scale
};

/// A number that a step tells of itself.
struct Fact {
  std::string name;
  double value = 0;
  std::optional<comm::Reduce> over_ranks = {};  // how those of all ranks make one; nullopt: that of rank 0 holds
};
using Facts = std::vector<Fact>;

/// nullopt: nothing of that name is told.
std::optional<double> value_of(const Facts& facts, std::string_view name);

/// Those of all ranks as one. Ranks must tell the same of those that are combined. Collective.
Facts over_ranks(Facts facts, comm::ProcessGroup& group);

/// Called with the number of batches done and their total.
using Tick = std::function<void(int64_t done, int64_t total)>;

/// Is given this rank's part of each batch of a test, the best classes of its samples, and the samples of each rank
/// that shares the batch.
using Answered = std::function<void(const data::Batch& batch, const Ranking& best, std::span<const int64_t> sizes)>;

/// What the training loop repeats: it trains on one batch, and holds all that the training changes. The loop knows
/// nothing else of the model, its loss and its scores. All calls but state(), numbers() and
/// facts() are collective.
class Step {
 public:
  virtual ~Step() = default;

  /// From now on a step whose loss or gradients are not finite must change nothing and say so in Reading::skipped; up
  /// to `in_a_row` such steps may follow each other. Without this call a step must stop before backward if its loss is
  /// not finite. Throws SettingsError if the step cannot be undone.
  virtual void allow_skips(int64_t in_a_row) = 0;

  /// Trains on this rank's part of a batch, in the context of the batch. `step` counts from 0 over all runs of the job.
  /// Returns what the step did; where steps end late, what the oldest did that was under way, or nullopt if it may
  /// remain so.
  virtual std::optional<Reading> run(const data::Batch& batch, int64_t step, double learning_rate) = 0;

  /// How many steps may be under way when run() returns. Ranks may then be as far apart.
  virtual int64_t staleness() const { return 0; }

  /// Waits for the end of the oldest step that is under way; nullopt: none is. All other calls but state() and
  /// numbers() want none.
  virtual std::optional<Reading> end_next() { return std::nullopt; }

  /// What this rank holds between two steps, and at the peak of a step on a batch of the size of `batch`, before any
  /// has run (memory/rehearsal.h). `held`: what it holds besides the step's transient memory, such as this object and
  /// batches. The values of the state change. By default a step allocates nothing.
  virtual memory::Composition rehearse(const data::Batch& batch, memory::Account held) {
    return memory::compose({}, held);
  }

  /// The blocks of the step, or their parts, and what each allocates for the first micro-batch of a batch of the size
  /// of `batch`: of each stage of a pipeline that this rank holds. By default there are none.
  struct Blocks {
    memory::Chain chain;
    std::vector<memory::BlockRecord> records;
  };
  virtual std::vector<Blocks> rehearse_blocks(const data::Batch& batch, bool in_parts = false) { return {}; }

  /// What this rank's part of a step takes, in seconds, with nothing sent. By default nothing is told.
  struct Costs {
    std::vector<pipeline::StageCost> stages;  // of each stage of a pipeline that this rank holds, for a micro-batch
    double update = 0;                        // after the gradients are there
  };
  /// Measures them, on a batch, while the other ranks do the same. The state changes.
  virtual Costs measure(const data::Batch& batch) { return {}; }

  /// What this rank did in the last step over the stages of a pipeline, in seconds of std::chrono::steady_clock.
  virtual std::vector<pipeline::Timed> timeline() const { return {}; }

  /// Brings the tensors of state() up to date: applies updates that are late.
  virtual void settle() {}

  /// As settle(); besides, makes equal on all ranks what they have in common. Called before tests and saves.
  virtual void unify() { settle(); }

  /// Calls `body`, which may test the model, while the model has the values of weights(): they may be others than those
  /// that are trained. Called after unify(), and so is `body`.
  virtual void with_tested_weights(const std::function<void()>& body) { body(); }

  /// What a trained model consists of, as this rank holds it: parameters, then buffers.
  virtual std::vector<Parameter> weights() const = 0;

  /// The weights, then all other tensors that a checkpoint must hold. The tensors are the
  /// step's own, not copies.
  virtual std::vector<Parameter> state() const = 0;

  /// The numbers that a checkpoint must hold, by names that no other part of it uses.
  virtual storage::Fields numbers() const { return {}; }
  /// Called with all numbers of a checkpoint, which may lack this step's, after its tensors have been read.
  virtual void set_numbers(const storage::Fields& numbers) {}

  /// What there is to tell of the steps so far. Not collective.
  virtual Facts facts() const { return {}; }

  /// Evaluates weights() on all samples of a loader. The scores are equal on all ranks. A step whose model does not
  /// rank classes does not call `answered`.
  virtual Scores evaluate(data::Loader& loader, const Tick& tick, const Answered& answered) = 0;
};

}  // namespace tandem::train
