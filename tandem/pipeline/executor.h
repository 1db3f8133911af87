#pragma once
#include <map>
#include <set>
#include <vector>

#include "tandem/base/context.h"
#include "tandem/comm/handle.h"
#include "tandem/comm/process_group.h"
#include "tandem/memory/chain.h"
#include "tandem/pipeline/program.h"
#include "tandem/pipeline/proof.h"
#include "tandem/pipeline/simulation.h"

namespace tandem::pipeline {

/// A weight that several stages use, such as an embedding and the classifier that is its transpose. Each rank with one
/// of them holds it, with the same values.
struct SharedWeight {
  Tensor weight;  // a leaf; undefined where none of the stages is
  std::vector<int> stages;
};

/// The stages that a rank holds, as whoever owns the model and the batch gives them.
class Stages {
 public:
  virtual ~Stages() = default;

  /// The blocks of a stage, for a micro-batch: those of the last one end with the loss, where there is a backward, or
  /// with the features if the program divides the classifier.
  virtual memory::Chain chain(int stage, int micro_batch) = 0;

  /// What stage 0 takes. Asked where that stage is.
  virtual memory::Flow input(int micro_batch) = 0;

  /// Is given what the last stage has made, without a graph. Called where that stage is.
  virtual void end_forward(int micro_batch, const memory::Flow& output) = 0;

  /// Does an action of this rank's part of a divided classifier (is_of_head()); of sends, returns the messages under
  /// way. What it scores are the features that end_forward() was given.
  virtual std::vector<comm::Handle> run_head(const Action& action) { return {}; }

  /// Returns the gradient with which backward begins: of the loss, or of the features if the program divides the
  /// classifier, which are not held for it; undefined: 1. Called where the last stage is.
  virtual Tensor begin_backward(int micro_batch, const Tensor& loss) { return {}; }

  /// In which a micro-batch runs.
  virtual Context context_of(int micro_batch) { return current_context(); }

  /// The gradients of a stage's weights are complete, but those of shared ones.
  virtual void end_backward(int stage) {}

  /// All of the model's, in the same order on each rank. Their gradients are summed over their stages' ranks: each of
  /// these has the sum when the step ends.
  virtual std::vector<SharedWeight> shared_weights() { return {}; }
};

/// Runs a program on one rank: forward and backward of one step, over all micro-batches. Gradients are added to the
/// .grad of the stages' weights.
///
///   stage 1   receive ─▶ inputs ─▶ blocks ─▶ output ─▶ send      a forward keeps its graph, not its output
///             send ◀── their gradients ◀── graph ◀── receive     backward, or its half: weight gradients come later
///
/// The gradient of a shared weight goes to the rank of its first stage when the last of its stages on a rank has ended,
/// and comes back as a sum behind the lists: nothing in them waits for it.
///
/// What comes from another rank is a leaf of the graph here, and so is each value that is handed on between two stages
/// of this rank. A message is freed by its sender when its receiver must have it. Flows may have any number of tensors,
/// of any shapes, which may differ from one micro-batch to the next; only their number may not.
class Executor {
 public:
  /// Proves the program, of which this rank of the group runs its list. The group must outlive this object. Throws
  /// ProgramError; c10::ValueError if the group has another number of ranks. Not collective.
  Executor(Program program, comm::ProcessGroup& group);

  /// Collective: each rank of the group runs its list. `times`: is given when each action has run, in seconds of
  /// std::chrono::steady_clock, and with the memory meter what the rank holds then.
  void run(Stages& stages, std::vector<Timed>* times = nullptr);

  const Program& program() const { return program_; }
  const std::vector<MostHeld>& held() const { return held_; }

 private:
  class Step;

  Program program_;
  comm::ProcessGroup& group_;
  std::vector<MostHeld> held_;
  std::vector<std::vector<size_t>> receipts_;
  std::set<Action> later_;            // weight gradients that are actions of their own
  std::map<Action, int64_t> counts_;  // of tensors, of each wire, once its first message has told
};

}  // namespace tandem::pipeline
