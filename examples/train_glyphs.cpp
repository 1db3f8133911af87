// The program of the README with gradient clipping and a check of the result: learns to tell 100 characters apart on 4
// ranks.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/tandem.h"

using namespace tandem;

void run() {
  constexpr int64_t kClasses = 100, kBatch = 64;
  const auto glyphs = data::glyphs({.classes = std::to_string(kClasses)});
  double first = 0, last = 0;
  comm::run_ranks(4, [&](comm::ProcessGroup& group) {
    auto backbone = models::make({.name = "resnet_glyph", .embedding = 128});
    classifier::ClassShardedHead head({.classes = kClasses, .dim = 128, .scoring = classifier::cosface(24, 0.2)},
                                      group);
    parallel::DistributedDataParallel replicas(*backbone, group);
    auto parameters = train::parameters_of(*backbone);
    parameters.push_back(head.parameter());  // knows which rows this rank holds, as clipping needs
    train::Optimizer optimizer(parameters, {.momentum = 0.9});
    data::Loader loader(*glyphs.train, {.batch = kBatch, .rank = group.rank(), .size = group.size()});
    for (int epoch = 0; epoch < 2; ++epoch) {
      loader.start(epoch);
      for (data::Batch batch; loader.next(batch); optimizer.step(0.05)) {
        optimizer.zero_grad();
        auto loss = head.loss(backbone->forward(batch.images), batch.labels, comm::split_sizes(kBatch, group.size()));
        replicas.before_backward(loss);
        loss.backward();
        train::clip_grad_norm(parameters, 10, group);
        if (group.rank() == 0) (first == 0 ? first : last) = loss.item<double>();
      }
    }
    for (const auto& weight : backbone->parameters()) {
      TORCH_CHECK(weight.equal(comm::broadcast(weight.detach(), 0, group)), "the replicas have drifted apart");
    }
  });
  std::printf("loss %.3f -> %.3f\n", first, last);
  TORCH_CHECK(last < first - 1, "the loss did not fall");
}

int main() { return comm::run_main(run); }
