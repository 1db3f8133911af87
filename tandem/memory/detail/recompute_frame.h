#pragma once
#include <torch/csrc/autograd/saved_variable.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "tandem/base/context.h"
#include "tandem/memory/detail/autocast_settings.h"
#include "tandem/memory/detail/generator_state.h"
#include "tandem/memory/detail/kept_results.h"
#include "tandem/memory/detail/tensor_trace.h"
#include "tandem/memory/detail/watched_weights.h"
#include "tandem/memory/recompute.h"
#include "tandem/memory/weight_work.h"

namespace tandem::memory::detail {

/// One call of recompute(). The hooks of the tensors that the call saves own it; it owns neither them nor the graph.
///
///   graph ──▶ node ──▶ hooks ──▶ frame ──▶ inputs, forward
///                                  └─────▶ slots: of each saved tensor a trace, no memory
///                                  └─────▶ for each backward that runs: the tensors computed again, until used
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  using Forward = std::function<Flow(const Flow&)>;

  Frame(const Forward& forward, const Flow& inputs, const RecomputeOptions& options);

  /// The first call of forward.
  Flow run(const Flow& inputs);

  // For hooks. `slot` counts the tensors that forward saves.
  int64_t add(const Tensor& tensor, bool is_held);
  Tensor value_of(int64_t slot);
  void check_version(int64_t slot);
  void release(int64_t slot);

 private:
  friend class Replay;

  struct Slot {
    TensorTrace trace;
    bool is_held;    // by its hooks: a parameter
    bool is_needed;  // until its hooks end
  };
  struct Value {
    Tensor tensor;
    uint32_t version;
  };
  using Values = std::map<int64_t, Value>;
  struct Input {
    torch::autograd::SavedVariable value;  // through the hooks of an outer region, if there is one
    TensorTrace trace;
    bool requires_grad;
  };

  void keep_moved(std::vector<GeneratorState> states);
  void check_inputs_and_weights() const;
  Flow inputs_again() const;
  void replay(int64_t task, Values& values);
  void forget(int64_t task);
  std::string where() const;

  // Recursive: forward may free parts of a graph while it runs again.
  std::recursive_mutex mutex_;
  std::shared_ptr<const Forward> forward_;
  RecomputeOptions options_;
  Context context_;
  std::shared_ptr<WeightWork> work_ = weight_work();  // so that forward saves the same when it runs again
  AutocastSettings autocast_;
  std::vector<std::optional<Input>> inputs_;
  WatchedWeights weights_;
  std::vector<GeneratorState> generators_;
  bool is_default_generator_shared_ = false;
  KeptResults kept_;
  bool is_running_ = false;  // the first call
  std::vector<Slot> slots_;
  int64_t needed_ = 0;                // slots that are, and are not held
  std::map<int64_t, Values> values_;  // by the number of the backward
};

}  // namespace tandem::memory::detail
