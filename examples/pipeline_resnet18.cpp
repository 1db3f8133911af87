// A ResNet-18 over four ranks, each of which makes and holds its part of the blocks alone.
//
//   rank 0         rank 1   rank 2   rank 3
//   conv1, layer1  layer2   layer3   layer4, classifier
//
// First by hand: recv, blocks, send. A rank without a loss calls backward on what send() returned: it waits for the
// gradient that comes back from the next rank. Then as a pipeline: an executor runs the program of a schedule, so that
// the ranks work at the same time on different micro-batches. Both give the gradients of one device.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>

#include "tandem/comm/point_to_point.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/world.h"
#include "tandem/models/backbone.h"
#include "tandem/pipeline/executor.h"
#include "tandem/pipeline/schedule.h"

using namespace tandem;

constexpr int kRanks = 4, kMicroBatches = 4;
constexpr int64_t kImages = 8, kClasses = 10;
const std::vector<models::BlockRange> kParts = {{0, 2}, {3, 4}, {5, 6}, {7, 9}};  // blocks of each rank

std::shared_ptr<models::Backbone> make_part(std::vector<models::BlockRange> blocks) {
  auto part = models::make({.name = "resnet18",
                            .channels = 3,
                            .size = 32,
                            .embedding = kClasses,
                            .norm = models::Norm::group,
                            .blocks = std::move(blocks),
                            .seed = 1});
  part->to(at::kDouble);
  return part;
}

Tensor images() { return at::sin(at::arange(kImages * 3 * 32 * 32, at::kDouble)).view({kImages, 3, 32, 32}); }
Tensor labels() { return at::arange(kImages) % kClasses; }

void check_gradients(const models::Backbone& part, const models::Backbone& whole) {
  const auto expected = whole.named_parameters();
  for (const auto& parameter : part.named_parameters()) {
    const auto difference = (parameter.value().grad() - expected[parameter.key()].grad()).abs().max();
    TORCH_CHECK(difference.item<double>() < 1e-12, "the gradient of ", parameter.key(), " differs");
  }
}

/// The whole batch passes through one rank after the other.
void train_by_hand(const models::Backbone& part, comm::ProcessGroup& group) {
  const int rank = group.rank();
  const auto x = rank == 0 ? images() : comm::recv(rank - 1, group);
  const auto y = memory::run(part.chain(), memory::Flow{x})[0];
  const bool has_loss = rank + 1 == kRanks;
  const auto end = has_loss ? at::cross_entropy_loss(y, labels()) : comm::send(y, rank + 1, group);
  end.backward();
}

/// What an executor asks of a rank.
struct Part : pipeline::Stages {
  explicit Part(models::Backbone& of_rank) : part(of_rank) {}

  memory::Chain chain(int stage, int micro_batch) override {
    auto chain = part.chain();
    if (stage + 1 < kRanks) return chain;
    chain.blocks.push_back(memory::make_block("loss", {}, [micro_batch](const Tensor& y) {
      return at::cross_entropy_loss(y, labels().chunk(kMicroBatches)[micro_batch]) / kMicroBatches;
    }));
    return chain;
  }
  memory::Flow input(int micro_batch) override { return {images().chunk(kMicroBatches)[micro_batch]}; }
  void end_forward(int, const memory::Flow& output) override { loss += output[0].item<double>(); }

  models::Backbone& part;
  double loss = 0;
};

void run() {
  const auto whole = make_part({});
  const auto loss = at::cross_entropy_loss(whole->forward(images()), labels());
  loss.backward();

  comm::run_ranks(kRanks, [&](comm::ProcessGroup& group) {
    const auto part = make_part({kParts[group.rank()]});
    train_by_hand(*part, group);
    check_gradients(*part, *whole);

    part->zero_grad();
    Part stages(*part);
    pipeline::Executor executor(
        make_program(pipeline::schedule_of("1f1b"), {.ranks = kRanks, .micro_batches = kMicroBatches}), group);
    executor.run(stages);
    check_gradients(*part, *whole);
    if (group.rank() + 1 < kRanks) return;
    TORCH_CHECK(std::abs(stages.loss - loss.item<double>()) < 1e-12, "the loss differs");
    std::printf("by hand and as a pipeline, 4 ranks have the loss %.4f and the gradients of one device\n", stages.loss);
  });
}

int main() { return comm::run_main(run); }
