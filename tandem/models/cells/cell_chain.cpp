#include "tandem/models/cells/cell_chain.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"
#include "tandem/layers/dropout.h"

namespace tandem::models {

using memory::Flow;

CellChain::CellChain(std::string name, const ModelOptions& options, int64_t features)
    : Backbone(std::move(name), options, options.embedding > 0 ? options.embedding : features),
      features_(features),
      options_(options) {
  if (has_own_activation(options.norm)) {
    throw SettingsError(
        "norm has an activation of its own, wanted another one: in a network of cells the activation comes before "
        "the convolution");
  }
}

void CellChain::add_flow_block(std::string name, std::vector<std::shared_ptr<torch::nn::Module>> modules,
                               std::function<Flow(Flow)> forward) {
  std::vector<memory::Block> parts(1);
  parts[0].modules = std::move(modules);
  parts[0].forward = std::move(forward);
  add_block(std::move(name), std::move(parts));
}

void CellChain::add_cell(int64_t i, std::shared_ptr<torch::nn::Module> cell, std::function<Flow(Flow)> forward) {
  if (!cells_) cells_ = register_module("cells", std::make_shared<torch::nn::Module>("Sequential"));
  cells_->register_module(std::to_string(i), cell);
  add_flow_block("cells." + std::to_string(i), {std::move(cell)}, std::move(forward));
}

void CellChain::add_head(const std::function<std::shared_ptr<Normalization>()>& make_norm) {
  if (!holds_next_block()) return;
  const auto before = make_norm ? make_norm() : nullptr;
  const auto dropout = register_module("dropout", std::make_shared<layers::Dropout>(options_.dropout, "dropout"));
  std::vector<std::shared_ptr<torch::nn::Module>> modules = {dropout};
  if (before) modules.push_back(before);
  const auto pool = [dropout, before](const Tensor& x) {
    return dropout->forward((before ? before->forward(x, Then::activation) : x).mean({2, 3}));
  };
  if (options_.embedding == 0) {
    return add_flow_block("head", modules, [pool](Flow flow) {
      flow[0] = pool(flow[0]);
      return flow;
    });
  }
  const auto embedding = register_module(
      "embedding", std::make_shared<Linear>(features_, options_.embedding, /*bias=*/options_.norm == Norm::none));
  const auto bn = register_module("embedding_bn", make_normalization(options_.norm, options_.embedding));
  modules.insert(modules.end(), {embedding, bn});
  add_flow_block("head", modules, [=](Flow flow) {
    flow[0] = bn->forward(embedding->forward(pool(flow[0])));
    return flow;
  });
}

}  // namespace tandem::models
