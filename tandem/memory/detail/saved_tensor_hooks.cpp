#include "tandem/memory/detail/saved_tensor_hooks.h"

#include <torch/csrc/autograd/engine.h>

namespace tandem::memory::detail {
namespace {

using torch::autograd::Engine;

constinit thread_local HookSource* innermost_source = nullptr;
constinit thread_local bool is_exact = false;

/// Asks the innermost scope for hooks. Everything else is the work of the engine that was there before: it has its
/// threads already, and may be Python's.
class EngineWithHooks : public Engine {
 public:
  explicit EngineWithHooks(Engine& engine) : engine_(engine) {}

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return engine_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, std::shared_ptr<torch::autograd::Node> root,
      torch::autograd::InputBuffer&& input) override {
    return engine_.execute_with_graph_task(task, std::move(root), std::move(input));
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return engine_.make_anomaly_metadata();
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return innermost_source != nullptr ? innermost_source->make_hooks() : engine_.get_default_saved_variable_hooks();
  }

 private:
  Engine& engine_;
};

/// Never destroyed: graphs may outlive everything else.
Engine* engine_with_hooks = nullptr;

void install_engine() {
  static const bool is_done = [] {
    engine_with_hooks = new EngineWithHooks(Engine::get_default_engine());
    torch::autograd::set_default_engine_stub([]() -> Engine& { return *engine_with_hooks; });
    return true;
  }();
  (void)is_done;
}

}  // namespace

HookScope::HookScope(HookSource* source) : before_(innermost_source) {
  install_engine();
  innermost_source = source;
}

HookScope::~HookScope() { innermost_source = before_; }

HookSource* HookScope::innermost() { return innermost_source; }

ExactScope::ExactScope() : before_(is_exact) { is_exact = true; }

ExactScope::~ExactScope() { is_exact = before_; }

bool ExactScope::is_open() { return is_exact; }

}  // namespace tandem::memory::detail
