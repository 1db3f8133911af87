// A network and a data set of your own: trains, saves, resumes, tests; on 2 threads or on a launcher's processes.
#include <torch/nn.h>

#include "tandem/tandem.h"

using namespace tandem;

struct Net : torch::nn::Module {  // [n, 1, 8, 8] -> [n, 2]
  Tensor forward(const Tensor& images) { return linear(conv(images).relu().flatten(1)); }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(1, 8, 3));
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(8 * 6 * 6, 2));
};

struct Bars : data::Dataset {  // a bright row or column in noise
  explicit Bars(int64_t seed) : seed_(seed) {}
  int64_t size() const override { return 500; }
  int64_t num_classes() const override { return 2; }
  std::array<int64_t, 3> image_shape() const override { return {1, 8, 8}; }  // channels, height, width
  std::string class_name(int64_t label) const override { return label == 0 ? "row" : "column"; }
  std::string describe() const override { return "bars"; }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {  // called on several threads
    check_read(index, pixels);
    CounterRng random(seed_, 0, index);
    const int64_t label = index % 2, place = index / 2 % 8;
    for (int64_t i = 0; i < 64; ++i) pixels[i] = (label == 0 ? i / 8 : i % 8) == place ? 220 : random.uniform(0, 200);
    return label;
  }
  const int64_t seed_;
};

std::shared_ptr<Net> make_net() {
  const SeedScope seed(1);  // the same first weights in each run
  return std::make_shared<Net>();
}

void learn(comm::ProcessGroup& group, const std::string& folder) {
  const Bars training(1), test(2);
  data::Loader batches(training, {.batch = 50, .rank = group.rank(), .size = group.size(), .seed = 1});
  data::Loader tests(test, data::test_options({.batch = 100, .rank = group.rank(), .size = group.size()}));
  const auto loss = [](const Tensor& scores, const Tensor& labels) {
    return torch::cross_entropy_loss(scores, labels);
  };
  train::ModuleTask task(make_net(), loss);
  parallel::Mesh mesh({.data = group.size()}, group);
  train::SupervisedStep step(task, {.num_classes = 2}, mesh);
  train::CheckpointStore store(folder);
  const train::TrainerOptions plan = {.steps = 60, .schedule = {.lr = 0.05, .steps = 60}, .checkpoint_every = 20};
  train::Trainer trainer(step, batches, &tests, plan, &store, group);
  trainer.resume(store, {});
  const auto first = trainer.step();
  train::Observer quiet;  // its calls tell of each step, test and checkpoint
  const auto outcome = trainer.run(quiet);
  if (group.rank() != 0) return;
  if (first < outcome.steps) std::printf("loss %.17g\n", outcome.loss);
  std::printf("steps %ld to %ld, top-1 %.3f\n", first, outcome.steps, outcome.scores.value("top1"));
}

int main(int argc, char** argv) {  // own_model [FOLDER]
  const std::string folder = argc > 1 ? argv[1] : "own_model_checkpoints";
  return comm::run_main([&] { comm::run_world(2, [&](auto& group) { learn(group, folder); }); });
}
