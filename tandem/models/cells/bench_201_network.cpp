#include "tandem/models/cells/bench_201_network.h"

#include "tandem/models/cells/cell_nodes.h"

namespace tandem::models {
namespace {

using memory::Flow;

class Bench201Cell : public torch::nn::Module {
 public:
  Bench201Cell(const CellGenotype& genotype, const CellLayerOptions& options, double drop_path, const std::string& name)
      : torch::nn::Module("InferCell") {
    nodes_ = register_module("layers", std::make_shared<CellNodes>(genotype, 1, false, options, drop_path, name));
  }

  Tensor forward(const Tensor& x) const { return nodes_->forward({CellValue(x)}); }

 private:
  std::shared_ptr<CellNodes> nodes_;
};

}  // namespace

Bench201Network::Bench201Network(const CellGenotype& cell, const ModelOptions& options)
    : Bench201Chain("Bench201Network", options) {
  const auto make_cell = [&](int64_t block, const CellLayerOptions& layers) -> CellBlock {
    const auto made = std::make_shared<Bench201Cell>(cell, layers, options.drop_path, "cells." + std::to_string(block));
    return {made, [made](const Flow& x) { return Flow{made->forward(x[0])}; }};
  };
  add_blocks(
      nullptr, [](Flow x) { return x; }, make_cell);
  initialize(*this, options.seed);
}

}  // namespace tandem::models
