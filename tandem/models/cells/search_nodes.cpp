#include "tandem/models/cells/search_nodes.h"

#include <ATen/ATen.h>

#include "tandem/base/error.h"

namespace tandem::models {

SearchNodes::SearchNodes(const SearchCellOptions& options)
    : torch::nn::Module("ModuleList"),
      inputs_(options.space.inputs()),
      nodes_(options.space.nodes),
      gives_nodes_(options.space.skeleton->gives_nodes) {
  auto layers = options.layers;
  for (int64_t node = 0; node < nodes_; ++node) {
    for (int64_t input = 0; input < inputs_ + node; ++input) {
      const auto edge = edges_.size();
      layers.stride = input < options.halved ? 2 : 1;
      const MixtureOptions mixture = {.operations = options.cell.edges[edge], .partial = options.partial};
      edges_.push_back(register_module(std::to_string(edge), options.method.make_mixture(mixture, layers)));
    }
  }
}

Tensor SearchNodes::forward(std::vector<CellValue> values, const Tensor& weights) const {
  const auto of_edges = weights.unbind();
  size_t edge = 0;
  for (int64_t node = 0; node < nodes_; ++node) {
    Tensor sum;
    for (int64_t input = 0; input < inputs_ + node; ++input, ++edge) {
      sum = edges_[edge]->add_to(std::move(sum), values[static_cast<size_t>(input)], of_edges[edge]);
    }
    values.emplace_back(std::move(sum));
  }
  if (!gives_nodes_) return values.back().values();
  std::vector<Tensor> outputs;
  for (auto i = static_cast<size_t>(inputs_); i < values.size(); ++i) outputs.push_back(values[i].values());
  return at::cat(outputs, 1);
}

const SearchMethod& checked_method(const ModelOptions& options) {
  const auto& method = search_method(options.search_method);
  const int64_t wanted = 2 * options.search_partial;
  if (method.is_partial && options.cell_channels % wanted != 0) {
    throw SettingsError("cell_channels is " + std::to_string(options.cell_channels) + " with " +
                        std::string(method.name) + ", wanted a multiple of " + std::to_string(wanted) +
                        ", twice the channels of which one goes through the operations");
  }
  return method;
}

}  // namespace tandem::models
