// Three ranks with 2, 5 and 3 batches train one model: gradients travel as bfloat16, and a callback sees each of them.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <map>

#include "tandem/base/rng.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/world.h"
#include "tandem/parallel/join.h"
#include "tandem/train/optimizer.h"

using namespace tandem;

void run() {
  constexpr int64_t kBatch = 16;
  const std::vector<int64_t> batches = {2, 5, 3};
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    torch::nn::Linear model(8, 1);  // rank 0's weights go to all
    std::map<std::string, double> norms;
    parallel::DistributedDataParallelOptions options = {.hook = &parallel::gradient_hook("bf16")};
    options.after_sum = [&](std::string_view name, const Tensor& sum) {
      norms[std::string(name)] = sum.norm().item<double>();
    };
    parallel::DistributedDataParallel replicas(*model, group, options);
    train::Optimizer optimizer(train::parameters_of(*model), {.weight_decay = 0});
    const auto step = [&] {
      optimizer.step(0.1);
      optimizer.zero_grad();
    };

    parallel::Join join(replicas);
    double first = 0, last = 0;
    for (int64_t i = 0; i < batches[group.rank()]; ++i) {
      const auto [ranks, samples] = join.begin(kBatch);
      const auto x = at::empty({kBatch, 8}, at::kFloat);
      fill_normal_(x, 1.0, 1, group.rank() * 100 + i);
      const auto loss = (model(x) - x.sum(1, true)).square().sum() / samples;  // as on one device
      replicas.before_backward(loss);
      loss.backward();
      step();
      (i == 0 ? first : last) = loss.item<double>() * static_cast<double>(samples) / kBatch;
    }
    join.end(step);

    std::printf("rank %d: loss %.3f -> %.3f, last norm of the weight's gradient %.3f\n", group.rank(), first, last,
                norms["weight"]);
    TORCH_CHECK(last < first, "the loss did not fall");
  });
}

int main() { return comm::run_main(run); }
