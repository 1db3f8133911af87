#include "tandem/base/autograd_engine.h"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace tandem {
namespace {

using torch::autograd::Engine;

std::atomic<MakeSavedTensorHooks> make_hooks{nullptr};

class OwnEngine;

constinit thread_local OwnEngine* engine_here = nullptr;

/// Its threads begin work on it, too.
class OwnEngine : public Engine {
 public:
  OwnEngine() = default;
  ~OwnEngine() override { stop(); }

  /// An engine starts its threads by itself only if no other one of the process has.
  void start() { start_device_threads(); }

  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& queue, bool increments) override {
    engine_here = this;
    Engine::thread_init(device, queue, increments);
  }
};

/// Engines that no scope uses.
class IdleEngines {
 public:
  OwnEngine* take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      idle_.push_back(new OwnEngine);  // never destroyed: graphs may outlive everything else
      idle_.back()->start();
    }
    auto* engine = idle_.back();
    idle_.pop_back();
    return engine;
  }
  void give_back(OwnEngine* engine) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(engine);
  }

 private:
  std::mutex mutex_;
  std::vector<OwnEngine*> idle_;
};

IdleEngines& idle_engines() {
  static auto* engines = new IdleEngines;
  return *engines;
}

/// All work is that of another engine: the one that was there before, which has its threads already and may be
/// Python's, or that of the calling thread's scope.
class TandemEngine : public Engine {
 public:
  explicit TandemEngine(Engine& before) : before_(before) {}

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, std::shared_ptr<torch::autograd::Node> root,
      torch::autograd::InputBuffer&& input) override {
    return engine().execute_with_graph_task(task, std::move(root), std::move(input));
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return before_.make_anomaly_metadata();
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    const auto make = make_hooks.load(std::memory_order_relaxed);
    auto hooks = make != nullptr ? make() : nullptr;
    return hooks ? std::move(hooks) : before_.get_default_saved_variable_hooks();
  }

 private:
  Engine& engine() { return engine_here != nullptr ? *engine_here : before_; }

  Engine& before_;
};

/// Never destroyed: graphs may outlive everything else.
TandemEngine* installed = nullptr;

}  // namespace

void install_autograd_engine() {
  static const bool is_done = [] {
    installed = new TandemEngine(Engine::get_default_engine());
    torch::autograd::set_default_engine_stub([]() -> Engine& { return *installed; });
    return true;
  }();
  (void)is_done;
}

EngineScope::EngineScope() : before_(engine_here) {
  install_autograd_engine();
  Engine::get_base_engine().initialize_device_threads_pool();  // before another engine takes itself for the first
  auto* engine = idle_engines().take();
  own_ = engine;
  engine_here = engine;
}

EngineScope::~EngineScope() {
  engine_here = static_cast<OwnEngine*>(before_);
  idle_engines().give_back(static_cast<OwnEngine*>(own_));
}

void set_saved_tensor_hooks(MakeSavedTensorHooks make) { make_hooks.store(make); }

}  // namespace tandem
