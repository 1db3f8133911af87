#include "tandem/pipeline/executor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/layers/convolution.h"
#include "tandem/layers/linear.h"
#include "tandem/memory/recompute.h"
#include "tandem/memory/weight_work.h"
#include "tandem/pipeline/schedule.h"

namespace tandem::pipeline {
namespace {

using memory::Flow;

constexpr int kMostRanks = 4;

/// torch's own layer, which knows nothing of late gradients.
struct Foreign : torch::nn::Module {
  Foreign() : torch::nn::Module("Foreign") {
    weight = register_parameter("weight", at::linspace(-1, 1, 16, at::kDouble).view({4, 4}));
  }
  Tensor weight;
};

/// Blocks with shortcuts that are open between them, a weight used twice, cut and joined values, a recomputed block.
struct Model : torch::nn::Module {
  Model() : torch::nn::Module("Model") {
    using layers::Conv2d;
    stem = add("stem", Conv2d({.in = 2, .out = 3, .kernel = 3, .padding = 1, .bias = true}));
    inner = add("inner", Conv2d({.in = 3, .out = 3, .kernel = 3, .padding = 1}));
    wide = add("wide", layers::Linear(3, 4));
    twice = add("twice", layers::Linear(2, 2));
    again = add("again", layers::Linear(4, 4));
    last = add("last", layers::Linear(4, 3, /*bias=*/false));
    foreign = register_module("foreign", std::make_shared<Foreign>());
    layers::initialize(*this, 1);
    to(at::kDouble);
    make_blocks();
  }

  template <class Layer>
  std::shared_ptr<Layer> add(const std::string& name, Layer layer) {
    return register_module(name, std::make_shared<Layer>(std::move(layer)));
  }

  void make_blocks() {
    const auto block = [this](const std::string& name, const std::function<Flow(const Flow&)>& forward) {
      blocks.push_back({.name = name, .modules = {}, .forward = forward});
    };
    block("stem", [this](const Flow& x) { return Flow{at::relu(stem->forward(x[0]))}; });
    block("open", [this](const Flow& x) { return Flow{at::tanh(inner->forward(x[0])), x[0]}; });
    block("close", [this](const Flow& x) { return Flow{at::relu(inner->forward(x[0])) + x[1]}; });
    block("pool", [this](const Flow& x) { return Flow{at::tanh(wide->forward(x[0].mean({2, 3})))}; });
    block("twice", [this](const Flow& x) {
      const auto halves = x[0].chunk(2, 1);
      return Flow{at::tanh(at::cat({twice->forward(halves[1]), twice->forward(halves[0])}, 1))};
    });
    block("again", [this](const Flow& x) {
      return memory::recompute([this](const Flow& y) { return Flow{at::tanh(again->forward(y[0]))}; }, x);
    });
    block("foreign", [this](const Flow& x) { return Flow{at::tanh(x[0].matmul(foreign->weight))}; });
    block("last", [this](const Flow& x) { return Flow{last->forward(x[0])}; });
  }

  std::shared_ptr<layers::Conv2d> stem, inner;
  std::shared_ptr<layers::Linear> wide, twice, again, last;
  std::shared_ptr<Foreign> foreign;
  std::vector<memory::Block> blocks;
};

Tensor images_of(int64_t rows, int micro_batch) {
  return at::sin(at::arange(rows * 2 * 5 * 4, at::kDouble) + micro_batch).view({rows, 2, 5, 4});
}

memory::Block loss_block() {
  return memory::make_block("loss", {}, [](const Tensor& y) { return (y * y.cos()).sum(); });
}

/// So many blocks for each stage, uneven.
std::vector<int64_t> sizes_of(int stages) {
  auto sizes = comm::split_sizes(8, stages);
  if (stages > 1 && sizes[0] > 1) --sizes[0], ++sizes.back();
  return sizes;
}

struct Whole : Stages {
  Whole(Model& of_model, std::vector<int64_t> of_rows, int stages)
      : model(of_model), rows(std::move(of_rows)), sizes(sizes_of(stages)) {}

  memory::Chain chain(int stage, int) override {
    const auto first = std::accumulate(sizes.begin(), sizes.begin() + stage, int64_t{0});
    memory::Chain chain;
    for (int64_t i = first; i < first + sizes[stage]; ++i) chain.blocks.push_back(model.blocks[i]);
    if (stage + 1 == static_cast<int>(sizes.size())) chain.blocks.push_back(loss_block());
    return chain;
  }
  Flow input(int micro_batch) override { return {images_of(rows[micro_batch], micro_batch)}; }
  void end_forward(int micro_batch, const Flow& output) override { losses[micro_batch] = output[0].item<double>(); }
  Tensor begin_backward(int, const Tensor& loss) override { return at::full_like(loss, 0.5); }
  void end_backward(int stage) override { ended.push_back(stage); }

  Model& model;
  std::vector<int64_t> rows, sizes;
  std::map<int, double> losses;
  std::vector<int> ended;
};

/// One device, one micro-batch after the other.
std::map<int, double> train_alone(Model& model, const std::vector<int64_t>& rows) {
  std::map<int, double> losses;
  for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
    Flow flow = {images_of(rows[i], i)};
    for (const auto& block : model.blocks) flow = block.forward(flow);
    const auto loss = loss_block().forward(flow)[0];
    losses[i] = loss.item<double>();
    (loss * 0.5).backward();
  }
  return losses;
}

void expect_gradients(Model& own, Model& alone, const std::vector<int>& stages, const std::vector<int64_t>& sizes,
                      const std::string& what) {
  static const std::vector<std::vector<std::string>> kOf = {{"stem.weight", "stem.bias"},
                                                            {"inner.weight"},
                                                            {"inner.weight"},
                                                            {"wide.weight", "wide.bias"},
                                                            {"twice.weight", "twice.bias"},
                                                            {"again.weight", "again.bias"},
                                                            {"foreign.weight"},
                                                            {"last.weight"}};
  const auto parameters = own.named_parameters(), expected = alone.named_parameters();
  for (const int stage : stages) {
    const auto first = std::accumulate(sizes.begin(), sizes.begin() + stage, int64_t{0});
    for (int64_t block = first; block < first + sizes[stage]; ++block) {
      for (const auto& name : kOf[block]) {
        if (name == "inner.weight") continue;  // whose blocks may be on two ranks
        ASSERT_TRUE(parameters[name].grad().defined()) << what << " " << name;
        EXPECT_LE((parameters[name].grad() - expected[name].grad()).abs().max().item<double>(), 1e-14)
            << what << " " << name;
      }
    }
  }
}

TEST(Executor, GradientsAreThoseOfOneDevice) {
  for (const auto& schedule : schedules()) {
    if (!schedule.has_backward) continue;
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
      std::vector<int64_t> rows = {3, 1, 2, 4};
      if (schedule.name != "interleaved") rows.push_back(2);
      if (rows.size() % ranks != 0 && schedule.name == "interleaved") rows.resize(ranks);
      Model alone;
      const auto losses = train_alone(alone, rows);
      const ScheduleSize size = {.ranks = ranks, .micro_batches = static_cast<int>(rows.size())};
      const auto what = std::string(schedule.name) + " on " + std::to_string(ranks);
      const auto train = [&](comm::ProcessGroup& group) {
        Model own;
        Executor executor(make_program(schedule, size), group);
        Whole stages(own, rows, executor.program().num_stages());
        for (int step = 0; step < 2; ++step) {
          own.zero_grad();
          executor.run(stages);
          expect_gradients(own, alone, executor.program().stages_of(group.rank()), stages.sizes, what);
        }
        const bool has_last = group.rank() == executor.program().rank_of.back();
        EXPECT_EQ(stages.losses, (has_last ? losses : std::map<int, double>())) << what;
        EXPECT_EQ(stages.ended.size(), 2 * executor.program().stages_of(group.rank()).size()) << what;
      };
      comm::run_ranks(ranks, train, {.threads = 1});
    }
  }
}

TEST(Executor, WantsAsManyRanksAsTheProgram) {
  const auto group = comm::make_single_group();
  const auto program = make_program(schedule_of("gpipe"), {.ranks = 2, .micro_batches = 1});
  EXPECT_THROW(Executor(program, *group), c10::ValueError);
}

/// A linear layer behind a cut of its input, in backward of two halves.
TEST(PyTorch170277, WeightGradientsBehindChunksAreRight) {
  const auto linear = std::make_shared<layers::Linear>(3, 2);
  linear->initialize(1, "linear");
  linear->to(at::kDouble);
  const auto x = at::sin(at::arange(24, at::kDouble)).view({4, 6});
  const auto forward = [&] {
    const auto parts = x.chunk(2, 1);
    return (linear->forward(parts[0]) * at::arange(8).view({4, 2})).sum() + linear->forward(parts[1]).pow(2).sum();
  };
  forward().backward();
  const auto expected = linear->named_parameters()["weight"].grad().clone();
  linear->zero_grad();
  const auto work = std::make_shared<memory::WeightWork>();
  {
    const memory::WeightWorkScope scope(work);
    forward().backward();
  }
  const auto weight = linear->named_parameters()["weight"];
  EXPECT_FALSE(weight.grad().defined() && weight.grad().abs().max().item<double>() > 0);
  work->run();
  EXPECT_TRUE(work->is_empty());
  EXPECT_TRUE(at::allclose(weight.grad(), expected, 1e-14, 1e-14));
}

TEST(WeightWork, WantsWhatItReadsAsItWas) {
  const auto linear = std::make_shared<layers::Linear>(3, 2);
  linear->initialize(1, "linear");
  const auto x = at::ones({4, 3});
  const auto work = std::make_shared<memory::WeightWork>();
  const memory::WeightWorkScope scope(work);
  linear->forward(x).sum().backward();
  x.zero_();
  EXPECT_THROW(work->run(), c10::Error);
}

}  // namespace
}  // namespace tandem::pipeline
