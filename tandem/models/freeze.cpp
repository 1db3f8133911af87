#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/models/backbone.h"

namespace tandem::models {
namespace {

/// "layer1.0.conv1.weight", and what it lies in: "layer1.0.conv1", "layer1.0", "layer1".
std::set<std::string> places_of(const std::vector<std::string>& names) {
  std::set<std::string> places;
  for (const auto& name : names) {
    for (auto end = name.size(); end != name.npos; end = name.rfind('.', end - 1)) places.insert(name.substr(0, end));
  }
  return places;
}

[[noreturn]] void refuse(const std::string& prefix, const std::vector<std::string>& names) {
  const auto places = places_of(names);
  const std::vector<std::string_view> candidates(places.begin(), places.end());
  const auto near = nearest(prefix, candidates);
  throw SettingsError("freeze has " + quote(prefix) + ", wanted the beginning of a parameter's name",
                      near.empty() ? "the model has names such as " + *places.begin() : did_you_mean(near));
}

}  // namespace

void check_frozen(std::span<const std::string> prefixes, const std::vector<std::string>& names) {
  for (const auto& prefix : prefixes) {
    const auto has_it = [&](const std::string& name) { return !prefix.empty() && name.starts_with(prefix); };
    if (std::ranges::none_of(names, has_it)) refuse(prefix, names);
  }
}

void freeze_here(torch::nn::Module& model, std::span<const std::string> prefixes) {
  for (auto& item : model.named_parameters()) {
    const auto begins_it = [&](const std::string& prefix) { return item.key().starts_with(prefix); };
    if (std::ranges::any_of(prefixes, begins_it)) item.value().requires_grad_(false);
  }
}

void freeze(torch::nn::Module& model, std::span<const std::string> prefixes) {
  check_frozen(prefixes, model.named_parameters().keys());
  freeze_here(model, prefixes);
}

void freeze(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) parameter.requires_grad_(false);
}

}  // namespace tandem::models
