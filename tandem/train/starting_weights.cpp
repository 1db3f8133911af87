#include "tandem/train/starting_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/finite.h"
#include "tandem/base/quote.h"

namespace tandem::train {
namespace {

/// What torch's DistributedDataParallel, torch.compile and Lightning put before each name.
constexpr std::array<std::string_view, 3> kWrappers = {"module.", "_orig_mod.", "model."};

using Names = std::vector<std::string>;

bool begins_with_one(const std::string& name, const Names& beginnings) {
  return std::ranges::any_of(beginnings, [&](const auto& beginning) { return name.starts_with(beginning); });
}

/// The tensors of a file that may be weights, under the names that they have without wrappers.
std::map<std::string, std::string> bare_names(const StoredTensors& files) {
  std::map<std::string, std::string> stored;
  for (const auto& name : files.names()) {
    if (!is_state_name(name)) stored[name] = name;
  }
  const auto wraps_all = [&](std::string_view wrapper) {
    return std::ranges::all_of(stored, [&](const auto& entry) { return entry.first.starts_with(wrapper); });
  };
  for (auto wrapper = kWrappers.begin(); !stored.empty() && wrapper != kWrappers.end();) {
    if (!wraps_all(*wrapper)) {
      ++wrapper;
      continue;
    }
    std::map<std::string, std::string> bare;
    for (const auto& [name, full] : stored) bare[name.substr(wrapper->size())] = full;
    stored = std::move(bare);
    wrapper = kWrappers.begin();
  }
  return stored;
}

/// "'a', 'b', 'c' and 4 more".
std::string some_of(const Names& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i == 0 ? "" : ", ") + quote(names[i]);
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

std::string sizes_text(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

/// A rank may hold several parts of one tensor.
std::map<std::string, const Parameter*> by_name(const std::vector<Parameter>& weights) {
  std::map<std::string, const Parameter*> first;
  for (const auto& weight : weights) first.emplace(weight.name, &weight);
  return first;
}

std::vector<int64_t> sizes_of(const Parameter& weight) { return weight.placement.whole_sizes(weight.tensor.sizes()); }

bool can_be(at::ScalarType stored, at::ScalarType wanted) {
  return at::isFloatingType(stored) == at::isFloatingType(wanted) && !at::isComplexType(stored);
}

Names without(const Names& names, const Names& beginnings) {
  Names rest;
  std::ranges::copy_if(names, std::back_inserter(rest),
                       [&](const auto& name) { return !begins_with_one(name, beginnings); });
  return rest;
}

/// "'conv1.weight' is [64, 3, 7, 7] there, wanted [64, 1, 7, 7]".
std::string difference(const std::string& name, const WeightMatch& match, const StoredTensors& files,
                       const Parameter& weight) {
  return quote(name) + " is " + sizes_text(files.tensor(match.stored.at(name)).sizes) + " there, wanted " +
         sizes_text(sizes_of(weight));
}

void check_type(const std::string& begin, const StoredTensor& stored, const Parameter& weight) {
  const auto type = weight.tensor.scalar_type();
  if (can_be(stored.type, type)) return;
  throw SettingsError(begin + quote(weight.name) + " is " + at::toString(stored.type) + " there, wanted " +
                      (at::isFloatingType(type) ? "floating-point numbers" : "whole numbers"));
}

}  // namespace

WeightMatch match_weights(const StoredTensors& files, const std::string& file, const std::vector<Parameter>& weights,
                          const WeightRoles& roles) {
  const auto begin = "weights is " + quote(file) + ": ";
  WeightMatch match;
  auto stored = bare_names(files);
  const auto own = by_name(weights);
  for (const auto& [name, weight] : own) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      if (!name.ends_with("num_batches_tracked")) match.missing.push_back(name);
      continue;
    }
    const auto& tensor = files.tensor(found->second);
    check_type(begin, tensor, *weight);
    if (tensor.sizes != sizes_of(*weight)) match.other_sizes.push_back(name);
    match.stored[name] = found->second;
    stored.erase(found);
  }
  for (const auto& [name, full] : stored) match.unused.push_back(full);

  if (const auto lacking = without(match.missing, roles.may_miss); !lacking.empty()) {
    throw SettingsError(begin + some_of(lacking) + (lacking.size() == 1 ? " is" : " are") +
                            " missing there, wanted all weights of this model",
                        "give the model that they are of");
  }
  if (const auto odd = without(match.other_sizes, roles.may_differ); !odd.empty()) {
    throw SettingsError(begin + difference(odd[0], match, files, *own.at(odd[0])) +
                            (odd.size() == 1 ? "" : ", and " + std::to_string(odd.size() - 1) + " more differ"),
                        "give the model, and images of the size and channels, that they are of");
  }
  return match;
}

void fill_weights(const StoredTensors& files, const WeightMatch& match, const std::vector<Parameter>& weights) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::buffers);
  for (const auto& [name, tensor, placement] : weights) {
    const auto found = match.stored.find(name);
    if (found == match.stored.end() || std::ranges::count(match.other_sizes, name) > 0) continue;
    const auto values = files.read(found->second, placement.box(tensor.sizes()));
    if (!all_finite(values)) {
      throw NonFiniteError("weights have an infinity or NaN in " + quote(found->second) + ", wanted finite numbers");
    }
    tensor.detach().copy_(values);
    if (!all_finite(tensor.detach())) {
      throw NonFiniteError("weights have numbers in " + quote(found->second) + " that are too large for " +
                           at::toString(tensor.scalar_type()) + ", wanted finite numbers");
    }
  }
}

std::vector<std::string> lines_of(const WeightMatch& match, const StoredTensors& files,
                                  const std::vector<Parameter>& weights) {
  std::vector<std::string> lines;
  if (!match.missing.empty()) lines.push_back(some_of(match.missing) + " not there: start as drawn");
  const auto own = by_name(weights);
  for (const auto& name : match.other_sizes) {
    lines.push_back(difference(name, match, files, *own.at(name)) + ": starts as drawn");
  }
  if (!match.unused.empty()) lines.push_back(some_of(match.unused) + " left out: the model has no such weights");
  return lines;
}

}  // namespace tandem::train
