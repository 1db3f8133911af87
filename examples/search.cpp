// Searches the cells of a network that tells bright rows from bright columns, on two ranks.
#include <ATen/ATen.h>

#include <iostream>

#include "tandem/tandem.h"

using namespace tandem;

struct Bars : data::Dataset {  // a bright row or column in noise
  explicit Bars(int64_t seed) : seed_(seed) {}
  int64_t size() const override { return 96; }
  int64_t num_classes() const override { return 2; }
  std::array<int64_t, 3> image_shape() const override { return {1, 8, 8}; }
  std::string class_name(int64_t label) const override { return label == 0 ? "row" : "column"; }
  std::string describe() const override { return "bars"; }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    CounterRng random(seed_, 0, index);
    const int64_t label = index % 2, place = index / 2 % 8;
    for (int64_t i = 0; i < 64; ++i) pixels[i] = (label == 0 ? i / 8 : i % 8) == place ? 220 : random.uniform(0, 200);
    return label;
  }
  const int64_t seed_;
};

void run_search(comm::ProcessGroup& group) {
  const Bars training(1), validation(2);
  const data::LoaderOptions part = {.batch = 16, .rank = group.rank(), .size = group.size(), .seed = 1};
  data::Loader batches(training, part), for_alphas(validation, part);

  // A network with all operations on each edge; without a classifier behind it, its embedding are the scores.
  const auto net =
      models::make({.name = "search:s3", .channels = 1, .size = 8, .embedding = 2, .cells = 3, .cell_channels = 4});
  train::ModuleTask task(net, net->chain(), [](const Tensor& scores, const Tensor& labels) {
    return differentiable_cross_entropy(scores, labels);
  });
  parallel::Mesh mesh({.data = group.size()}, group);
  search::SearchStepOptions options{.alphas_rate = 0.01};
  options.weights.optimizer.nesterov = false;
  options.weights.num_classes = 2;
  search::SearchStep step(task, models::space_of("s3"), options, mesh);
  step.read_from(for_alphas);

  train::Trainer trainer(step, batches, nullptr, {.steps = 12, .schedule = {.lr = 0.05}}, nullptr, group);
  train::Observer nobody;
  const auto outcome = trainer.run(nobody);
  if (group.rank() == 0) std::cout << "loss " << outcome.loss << "\n" << step.genotype() << "\n";
}

int main() { comm::run_world(2, run_search); }
