#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/models/backbone.h"

namespace tandem::models {
namespace {

/// "layer1.0.conv1.weight", and what it lies in: "layer1.0.conv1", "layer1.0", "layer1".
std::set<std::string> places_of(const torch::nn::Module& model) {
  std::set<std::string> places;
  for (const auto& name : model.named_parameters().keys()) {
    for (auto end = name.size(); end != name.npos; end = name.rfind('.', end - 1)) places.insert(name.substr(0, end));
  }
  return places;
}

[[noreturn]] void refuse(const std::string& prefix, const torch::nn::Module& model) {
  const auto places = places_of(model);
  const std::vector<std::string_view> candidates(places.begin(), places.end());
  const auto near = nearest(prefix, candidates);
  throw SettingsError("freeze has " + quote(prefix) + ", wanted the beginning of a parameter's name",
                      near.empty() ? "the model has names such as " + *places.begin() : did_you_mean(near));
}

}  // namespace

void freeze(torch::nn::Module& model, std::span<const std::string> prefixes) {
  for (const auto& prefix : prefixes) {
    bool is_known = false;
    for (auto& item : model.named_parameters()) {
      if (prefix.empty() || !item.key().starts_with(prefix)) continue;
      item.value().requires_grad_(false);
      is_known = true;
    }
    if (!is_known) refuse(prefix, model);
  }
}

void freeze(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) parameter.requires_grad_(false);
}

}  // namespace tandem::models
