#pragma once
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tandem/layers/convolution.h"
#include "tandem/layers/linear.h"
#include "tandem/memory/recompute.h"
#include "tandem/pipeline/executor.h"

// A model of eight blocks that is cut into stages, and one device that trains it.
namespace tandem::pipeline {

using memory::Flow;

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

/// [rows, 2, 5, 4] float64.
Tensor images_of(int64_t rows, int micro_batch);

/// The sum of y cos(y).
memory::Block loss_block();

/// So many blocks for each stage, uneven.
std::vector<int64_t> sizes_of(int stages);

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
  std::vector<SharedWeight> shared_weights() override {
    std::vector<SharedWeight> shared;
    for (const auto& weight : model.inner->parameters()) shared.push_back({weight, stages_of_inner()});
    return shared;
  }

  /// Two blocks use its weights, which may be in two stages.
  std::vector<int> stages_of_inner() const {
    std::vector<int> stages;
    for (const int64_t block : {1, 2}) {
      int64_t end = 0;
      int stage = -1;
      while (end <= block) end += sizes[static_cast<size_t>(++stage)];
      if (stages.empty() || stages.back() != stage) stages.push_back(stage);
    }
    return stages;
  }

  Model& model;
  std::vector<int64_t> rows, sizes;
  std::map<int, double> losses;
  std::vector<int> ended;
};

/// One device, one micro-batch after the other. Returns their losses.
std::map<int, double> train_alone(Model& model, const std::vector<int64_t>& rows);

/// Of the weights of some stages.
void expect_gradients(Model& own, Model& alone, const std::vector<int>& stages, const std::vector<int64_t>& sizes,
                      const std::string& what);

}  // namespace tandem::pipeline
