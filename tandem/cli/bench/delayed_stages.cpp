#include "tandem/cli/bench/delayed_stages.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "tandem/base/seconds.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/memory/weight_work.h"
#include "tandem/pipeline/executor.h"

namespace tandem::cli {
namespace {

using pipeline::StageCost;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kNumbers = 16;  // of a message

/// The system wakes a thread somewhat late: the last part is waited for awake.
void sleep(double seconds) {
  constexpr double kAwake = 1e-3;
  const auto start = std::chrono::steady_clock::now();
  if (seconds > kAwake) std::this_thread::sleep_for(std::chrono::duration<double>(seconds - kAwake));
  while (seconds_since(start) < seconds) std::this_thread::yield();
}

struct Cost : torch::CustomClassHolder {
  explicit Cost(const StageCost& of_stage) : stage(of_stage), work(memory::weight_work()) {}

  StageCost stage;
  std::shared_ptr<memory::WeightWork> work;
};

/// Adds a weight, and takes its time.
struct Sleep : torch::autograd::Function<Sleep> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const c10::intrusive_ptr<Cost>& cost) {
    context->saved_data["cost"] = c10::IValue::make_capsule(cost);
    context->save_for_backward({weight});
    sleep(cost->stage.forward);
    return x + weight;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["cost"].toCapsule();
    const auto cost = c10::static_intrusive_pointer_cast<Cost>(capsule);
    const auto weight = context->get_saved_variables()[0];
    sleep(cost->stage.input_gradient);
    const auto of_weight = [cost, gradient = gradients[0]] {
      sleep(cost->stage.weight_gradient);
      return std::vector<Tensor>{gradient};
    };
    if (cost->work == nullptr) return {gradients[0], of_weight()[0], {}};
    cost->work->leave({weight}, {gradients[0]}, of_weight);
    return {gradients[0], {}, {}};
  }
};

class DelayedStages : public pipeline::Stages {
 public:
  explicit DelayedStages(const std::vector<StageCost>& costs) : costs_(costs) {
    for (size_t i = 0; i < costs.size(); ++i) weights_.push_back(at::zeros({kNumbers}).requires_grad_());
  }

  memory::Chain chain(int stage, int) override {
    const bool is_last = static_cast<size_t>(stage) + 1 == costs_.size();
    memory::Chain chain;
    chain.blocks.push_back(memory::make_block("sleep", {}, [this, stage, is_last](const Tensor& x) {
      const auto y = Sleep::apply(x, weights_[static_cast<size_t>(stage)],
                                  c10::make_intrusive<Cost>(costs_[static_cast<size_t>(stage)]));
      return is_last ? y.sum() : y;
    }));
    return chain;
  }
  memory::Flow input(int) override { return {at::ones({kNumbers})}; }
  void end_forward(int, const memory::Flow&) override {}

 private:
  const std::vector<StageCost>& costs_;
  std::vector<Tensor> weights_;
};

}  // namespace

double run_delayed(const pipeline::Program& program, const std::vector<StageCost>& costs) {
  std::mutex mutex;
  double slowest = 0;
  const auto run_rank = [&](comm::ProcessGroup& group) {
    const at::AutoGradMode with_gradients(program.has_backward());
    pipeline::Executor executor(program, group);
    DelayedStages stages(costs);
    executor.run(stages);
    comm::barrier(group);
    const auto start = std::chrono::steady_clock::now();
    executor.run(stages);
    const double seconds = seconds_since(start);
    const std::lock_guard lock(mutex);
    slowest = std::max(slowest, seconds);
  };
  comm::run_ranks(program.num_ranks(), run_rank, {.threads = 1});
  return slowest;
}

}  // namespace tandem::cli
