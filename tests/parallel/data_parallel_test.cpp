#include "tandem/parallel/data_parallel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <map>

#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/support/python.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using test::text_of;

std::vector<c10::Device> cpus(size_t count) { return {count, c10::DeviceType::CPU}; }

/// The network of tests/oracle/plain_training.py, and its loss.
struct Network : torch::nn::Cloneable<Network> {
  Network() { reset(); }
  void reset() override {
    conv = register_module("0", torch::nn::Conv2d(2, 5, 3));
    linear = register_module("3", torch::nn::Linear(5 * 16, 4));
  }
  Tensor logits(const Tensor& images) { return linear(conv(images).tanh().flatten(1)); }
  Nested forward(const Nested& batch) {
    return at::cross_entropy_loss(logits(batch["images"].tensor()), batch["targets"].tensor());
  }

  torch::nn::Conv2d conv = nullptr;
  torch::nn::Linear linear = nullptr;
};

using Answers = std::map<std::string, Tensor>;

/// The weights of a run of Python, from its first step on, on so many replicas.
void train_as_told(const Answers& told, const std::string& type, double bound, size_t replicas) {
  const auto of = [&](const std::string& key) { return told.at(type + "/" + key); };
  const auto network = std::make_shared<Network>();
  network->to(of("images").scalar_type());
  {
    const at::NoGradGuard no_grad;
    for (auto& weight : network->named_parameters()) weight.value().copy_(of("first." + weight.key()));
  }
  DataParallel model(network, {.devices = cpus(replicas), .scalars = Scalars::mean});
  torch::optim::SGD optimizer(network->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const Nested batch(Nested::Map{{"images", of("images")}, {"targets", of("targets")}});
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    const auto loss = model.forward(batch).tensor();
    EXPECT_TRUE(loss.allclose(of("losses")[step], bound, bound)) << type << " replicas " << replicas;
    loss.backward();
    optimizer.step();
  }
  for (const auto& weight : network->named_parameters()) {
    EXPECT_TRUE(weight.value().allclose(of("last." + weight.key()), bound, bound)) << type << ' ' << weight.key();
  }
}

TEST(DataParallel, TrainsAsAPlainModuleOfPythonsTorch) {
  const auto python = test::ask_python("plain_training.py", {});
  if (python.missing) GTEST_SKIP() << python.text;
  for (const size_t replicas : {1, 2, 3, 4}) {
    train_as_told(python.tensors, "float32", 1e-6, replicas);
    train_as_told(python.tensors, "float64", 1e-12, replicas);
  }
}

struct Normed : torch::nn::Cloneable<Normed> {
  Normed() { reset(); }
  void reset() override { norm = register_module("norm", torch::nn::BatchNorm1d(3)); }
  Tensor forward(const Tensor& x) { return norm(x); }

  torch::nn::BatchNorm1d norm = nullptr;
};

TEST(DataParallel, BuffersAreThoseOfReplicaZero) {
  const auto module = std::make_shared<Normed>(), alone = std::make_shared<Normed>();
  module->to(at::kDouble), alone->to(at::kDouble);
  DataParallel model(module, {.devices = cpus(3)});
  const auto x = at::randn({8, 3}, at::kDouble);
  for (int step = 1; step <= 3; ++step) {
    const auto y = model.forward(x * step);
    EXPECT_TRUE(y.slice(0, 0, 3).allclose(alone->forward(x.slice(0, 0, 3) * step))) << "by its own part";
    EXPECT_TRUE(y.slice(0, 3, 6).mean(0).allclose(at::zeros({3}, at::kDouble), 0, 1e-12)) << "by its own part";
    y.sum().backward();
  }
  // With another number of threads libtorch sums in another order.
  EXPECT_TRUE(module->norm->running_mean.allclose(alone->norm->running_mean, 1e-12, 1e-12));
  EXPECT_TRUE(module->norm->running_var.allclose(alone->norm->running_var, 1e-12, 1e-12));
  EXPECT_EQ(module->norm->num_batches_tracked.item<int64_t>(), 3);
  module->eval();
  const auto expected = module->forward(x);
  EXPECT_TRUE(model.forward(x).equal(expected)) << "replicas evaluate as the module does, with its statistics";
}

struct Scaled : torch::nn::Cloneable<Scaled> {
  Scaled() { reset(); }
  void reset() override { scale = register_parameter("scale", at::ones({1})); }
  Tensor forward(const Tensor& x) {
    TORCH_CHECK_VALUE(x.size(0) < 5, "too many rows");
    return x * scale;
  }

  Tensor scale;
};

TEST(DataParallel, TakesDimsChunksAndBatchesSmallerThanTheReplicas) {
  const auto module = std::make_shared<Scaled>();
  const auto x = at::arange(8.0).reshape({2, 4});
  EXPECT_TRUE(DataParallel(module, {.devices = cpus(3), .dim = 1}).forward(x).equal(x));
  EXPECT_TRUE(DataParallel(module, {.devices = cpus(2), .dim = 1, .chunk_sizes = {3, 1}}).forward(x).equal(x));
  DataParallel wide(module, {.devices = cpus(4)});
  EXPECT_TRUE(wide.forward(x).equal(x)) << "two rows for four replicas";
  EXPECT_TRUE(wide.forward(x.slice(0, 0, 0)).equal(x.slice(0, 0, 0)));
  const auto y = wide.forward(x);
  y.sum().backward();
  EXPECT_EQ(module->scale.grad().item<float>(), 28);
  const at::NoGradGuard no_grad;
  module->scale.fill_(3);
  EXPECT_TRUE(wide.forward(x).equal(3 * x)) << "the replicas share the memory of the weights";
  module->scale.set_data(at::full({1}, 5.0));
  EXPECT_TRUE(wide.forward(x).equal(5 * x)) << "and follow it";
}

TEST(DataParallel, RefusesWhatItCannotRun) {
  const auto module = std::make_shared<Scaled>();
  EXPECT_EQ(text_of<c10::ValueError>([&] { DataParallel(module, {.devices = {}}); }),
            "replicate: count is 0, wanted 1 or more");
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              DataParallel(module, {.devices = {c10::DeviceType::CPU, c10::Device("cuda:1")}});
            }),
            "data parallel: a device is cuda:1, wanted cpu as the first: for several use a rank each and "
            "DistributedDataParallel");
  DataParallel model(module, {.devices = cpus(2)});
  EXPECT_NE(text_of<c10::ValueError>([&] {
              model.forward(at::ones({20, 1}));
            }).find("replica 0 of 2"),
            std::string::npos);
  const auto on_meta = std::make_shared<torch::nn::Module>();
  on_meta->register_parameter("scale", at::ones({1}, at::kMeta));
  DataParallel elsewhere({on_meta}, [](auto&, const Nested& part) { return part; }, {.devices = cpus(2)});
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              elsewhere.forward(at::ones({2, 1}));
            }),
            "data parallel: scale is on meta, wanted cpu, the first of the devices: move the module there before");
}

struct Classifier : torch::nn::Cloneable<Classifier> {
  static constexpr int64_t kDim = 4, kClasses = 1000;
  Classifier() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(kDim, kClasses)); }
  Nested forward(const Nested& batch) {
    const auto logits = linear(batch["x"].tensor());
    return has_loss ? at::cross_entropy_loss(logits, batch["targets"].tensor()) : logits;
  }

  torch::nn::Linear linear = nullptr;
  bool has_loss = false;
};

/// The peak of one forward and backward on each device, in a book of its own.
std::vector<int64_t> peaks_of(bool has_loss, size_t devices, int64_t samples) {
  constexpr int kFirst = 40;  // of the books, which no other test uses
  const auto module = std::make_shared<Classifier>();
  module->has_loss = has_loss;
  DataParallel model(module, {.devices = cpus(devices), .scalars = Scalars::mean, .first_rank = kFirst});
  const auto targets = at::arange(samples);
  const Nested batch(Nested::Map{{"x", at::ones({samples, Classifier::kDim})}, {"targets", targets}});
  for (size_t i = 0; i < devices; ++i) memory::reset_peak(kFirst + static_cast<int>(i));
  {
    const RankScope first(kFirst);
    const auto value = model.forward(batch).tensor();
    (has_loss ? value : at::cross_entropy_loss(value, targets)).backward();
  }
  std::vector<int64_t> peaks;
  for (size_t i = 0; i < devices; ++i) peaks.push_back(memory::account(kFirst + static_cast<int>(i)).peak_bytes());
  return peaks;
}

/// The loss in the replicas leaves no whole output on the first device.
TEST(DataParallel, LossInTheReplicasLeavesNoWholeOutputOnTheFirstDevice) {
  memory::install_meter();
  constexpr int64_t kSamples = 64;
  std::vector<int64_t> outside, inside;
  const auto measure = [&](comm::ProcessGroup&) {
    outside = peaks_of(false, 4, kSamples);
    inside = peaks_of(true, 4, kSamples);
  };
  comm::run_ranks(1, measure, {.threads = 1});  // the replicas take turns: the same peaks in each run
  for (size_t i = 0; i < 4; ++i) {
    std::printf("device %zu   loss outside %8ld bytes   inside %8ld bytes\n", i, outside[i], inside[i]);
  }
  constexpr int64_t kOutput = kSamples * Classifier::kClasses * 4, kNumber = 4;
  EXPECT_EQ(outside, (std::vector<int64_t>{4 * kOutput + 2 * kNumber, kOutput / 4, kOutput / 4, kOutput / 4}));
  EXPECT_EQ(inside,
            (std::vector<int64_t>{3 * kOutput / 4 + 6 * kNumber, 3 * kOutput / 4, 3 * kOutput / 4, 3 * kOutput / 4}));
}

}  // namespace
}  // namespace tandem::parallel
