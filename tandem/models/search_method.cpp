#include "tandem/models/search_method.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"
#include "tandem/base/tangent.h"
#include "tandem/models/methods/methods.h"

namespace tandem::models {

std::span<const SearchMethod> search_methods() {
  static const std::array all = {methods::darts(), methods::pc_darts(), methods::darts_minus(), methods::gdas()};
  return all;
}

const SearchMethod& search_method(std::string_view name) {
  const auto all = search_methods();
  const auto found = std::ranges::find(all, name, &SearchMethod::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const auto& method : all) names.emplace_back(method.name);
  throw SettingsError("method is '" + std::string(name) + "', wanted " + one_of(names));
}

Tensor softmax_of_edges(const Tensor& edges, int64_t inputs) {
  std::vector<Tensor> nodes;
  for (int64_t first = 0, count = inputs; first < edges.size(0); first += count++) {
    nodes.push_back(differentiable_log_softmax(edges.narrow(0, first, count), 0).exp());
  }
  return at::cat(nodes);
}

}  // namespace tandem::models
