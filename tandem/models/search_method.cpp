#include "tandem/models/search_method.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"
#include "tandem/models/methods/methods.h"
#include "tandem/models/space.h"

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

std::vector<Tensor> shares_of(const Space& space, const SearchMethod& method, const std::vector<Tensor>& alphas) {
  const size_t step = method.weighs_edges ? 2 : 1;
  TORCH_CHECK_VALUE(alphas.size() == step * space.cells.size(), "alphas: there are ", alphas.size(), ", wanted ",
                    step * space.cells.size(), " for the space ", std::string(space.name));
  std::vector<Tensor> shares;
  for (size_t i = 0; i < alphas.size(); i += step) {
    shares.push_back(method.shares(
        {.operations = alphas[i], .edges = step > 1 ? alphas[i + 1] : Tensor(), .inputs = space.inputs()}));
  }
  return shares;
}

}  // namespace tandem::models
