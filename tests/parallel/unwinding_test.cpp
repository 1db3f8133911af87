#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tandem/comm/world.h"
#include "tandem/parallel/distributed_data_parallel.h"

namespace tandem::parallel {
namespace {

/// x itself; backward ends with an exception.
struct Broken : torch::autograd::Function<Broken> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    throw std::runtime_error("backward is broken");
  }
};

std::string state_of_the_sum(comm::ProcessGroup& group) {
  const auto record = nlohmann::json::parse(group.recorder().to_json(""));
  for (const auto& call : record["calls"]) {
    if (call["operation"] == "all_reduce") return call["state"];
  }
  return "none";
}

/// Another thread makes the sum.
void await_state(const std::string& state, comm::ProcessGroup& group) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (state_of_the_sum(group) != state && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(state_of_the_sum(group), state);
}

/// Freed memory is overwritten here (MALLOC_PERTURB_), so that a use of what is gone does not go unseen.
TEST(Unwinding, ASumThatEndsAfterItsReplicasIsNoted) {
  std::promise<void> gone;
  const auto rank_zero_is_gone = gone.get_future().share();
  comm::run_ranks(2,
                  [&](comm::ProcessGroup& group) {
                    auto first = at::ones({4}).requires_grad_(), last = at::ones({4}).requires_grad_();
                    std::optional<DistributedDataParallel> replicas(
                        std::in_place, std::vector{first, last}, std::vector<Tensor>{},
                        std::vector<std::string>{"first", "last"}, group,
                        DistributedDataParallelOptions{.bucket_bytes = 8, .first_bucket_bytes = 8});
                    const auto loss = (Broken::apply(first) * last).sum();
                    if (group.rank() == 1) rank_zero_is_gone.wait();
                    replicas->before_backward(loss);
                    EXPECT_THROW(loss.backward(), std::runtime_error);  // after the sum of `last` was started
                    if (group.rank() == 0) await_state("waiting", group);
                    replicas.reset();
                    if (group.rank() == 0) gone.set_value();
                    await_state("done", group);
                  },
                  {.timeout = std::chrono::seconds(20), .transport = comm::Transport::sockets});
}

}  // namespace
}  // namespace tandem::parallel
