#include "tandem/train/starting_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/finite.h"
#include "tandem/base/quote.h"
#include "tandem/train/detail/element_fault.h"
#include "tandem/train/detail/name_prefix.h"

namespace tandem::train {
namespace {

constexpr std::string_view kCounter = "num_batches_tracked", kVariance = "running_var";

using Names = std::vector<std::string>;

bool begins_with_one(const std::string& name, const Names& beginnings) {
  return std::ranges::any_of(beginnings, [&](const auto& beginning) { return name.starts_with(beginning); });
}

/// "'a', 'b', 'c' and 4 more".
std::string some_of(const Names& names, size_t shown = 3) {
  std::string text;
  for (size_t i = 0; i < std::min(shown, names.size()); ++i) text += (i == 0 ? "" : ", ") + quote(names[i]);
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
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

bool is_whole(const Parameter& weight) { return !at::isFloatingType(weight.tensor.scalar_type()); }

/// Other programs store a counter as a list of one, and in the type to which they convert their weights.
bool has_sizes(const StoredTensor& stored, const Parameter& weight) {
  const auto wanted = sizes_of(weight);
  return stored.sizes == wanted || (is_whole(weight) && wanted.empty() && stored.sizes == std::vector<int64_t>{1});
}

const Resampled* find_resampled(const std::vector<Resampled>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Resampled::name);
  return found == all.end() ? nullptr : &*found;
}

/// As it is or resampled.
bool serves(const StoredTensor& stored, const Parameter& weight, const WeightRoles& roles) {
  if (has_sizes(stored, weight)) return true;
  const auto* resampled = find_resampled(roles.resampled, weight.name);
  return resampled != nullptr && resampled->takes(stored.sizes, sizes_of(weight));
}

bool can_be(at::ScalarType stored, const Parameter& weight) {
  return at::isFloatingType(stored) || (is_whole(weight) && at::isIntegralType(stored, /*includeBool=*/false));
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
  if (can_be(stored.type, weight)) return;
  throw SettingsError(begin + quote(weight.name) + " is " + at::toString(stored.type) + " there, wanted " +
                      (is_whole(weight) ? "whole numbers" : "floating-point numbers"));
}

/// The weights by which a model is known in a file: those that must be there, if there are such.
std::set<std::string> known_by(const std::map<std::string, const Parameter*>& own, const WeightRoles& roles) {
  std::set<std::string> all, required;
  for (const auto& [name, weight] : own) {
    if (name.ends_with(kCounter)) continue;
    all.insert(name);
    if (!begins_with_one(name, roles.may_miss)) required.insert(name);
  }
  return required.empty() ? all : required;
}

std::string prefix_of(const StoredTensors& files, const std::string& begin,
                      const std::map<std::string, const Parameter*>& own, const WeightRoles& roles,
                      std::string chosen) {
  if (!chosen.empty() && !chosen.ends_with('.')) chosen += '.';
  const auto names = files.names();
  const auto known = known_by(own, roles);
  const auto fits = [&](const std::string& prefix) {
    return std::ranges::all_of(known, [&](const auto& name) {
      return begins_with_one(name, roles.may_differ) || serves(files.tensor(prefix + name), *own.at(name), roles);
    });
  };
  const auto found = detail::find_prefix({names.begin(), names.end()}, known, chosen, fits);
  if (found.choices.empty()) return found.prefix;
  const auto &one = found.choices[0], &other = found.choices[1];
  throw SettingsError(
      begin + "all weights of this model are there behind each of " + some_of(found.choices) + ", wanted them once",
      "choose with weights_prefix=" + one + " or weights_prefix=" + other);
}

/// The tensors of the file that no weight takes. A checkpoint's own state has names without a prefix.
Names unused_of(const StoredTensors& files, const WeightMatch& match) {
  std::set<std::string> used;
  for (const auto& [name, stored] : match.stored) used.insert(stored);
  Names unused;
  for (const auto& name : files.names()) {
    if (!used.contains(name) && !(match.prefix.empty() && is_state_name(name))) unused.push_back(name);
  }
  return unused;
}

void check_missing(const std::string& begin, const WeightMatch& match, const WeightRoles& roles) {
  const auto lacking = without(match.missing, roles.may_miss);
  if (lacking.empty()) return;
  const auto behind = match.prefix.empty() ? "" : " behind " + quote(match.prefix);
  const auto others = match.unused.empty() ? "" : "; the file also has " + some_of(match.unused);
  throw SettingsError(begin + some_of(lacking) + (lacking.size() == 1 ? " is" : " are") + " missing there" + behind +
                          ", wanted all weights of this model" + others,
                      "give the model that they are of");
}

void check_sizes(const std::string& begin, const WeightMatch& match, const WeightRoles& roles,
                 const StoredTensors& files, const std::map<std::string, const Parameter*>& own) {
  const auto odd = without(match.other_sizes, roles.may_differ);
  if (odd.empty()) return;
  throw SettingsError(begin + difference(odd[0], match, files, *own.at(odd[0])) +
                          (odd.size() == 1 ? "" : ", and " + std::to_string(odd.size() - 1) + " more differ"),
                      "give the model, and images of the size and channels, that they are of");
}

/// What the file has for the part `box` of a weight, in the file's type.
Tensor stored_part(const StoredTensors& files, const WeightMatch& match, const Parameter& weight, const Box& box) {
  const auto& stored = match.stored.at(weight.name);
  if (const auto* resampled = find_resampled(match.resampled, weight.name)) {
    const auto values = resampled->resample(files.read(stored));
    return view_of(values, whole_box(values.sizes()), box);
  }
  if (!is_whole(weight)) return files.read(stored, box);
  const auto sizes = sizes_of(weight);
  return view_of(files.read(stored).reshape(sizes), whole_box(sizes), box);
}

/// `what`: begins an error's text. The weight has been filled with `values`.
void check_values(const std::string& what, const Tensor& values, const Parameter& weight, const Box& box) {
  const auto refuse = [&](const Tensor& odd, const std::string& wanted, const std::string& remedy = "") {
    detail::refuse_elements(values, odd, box, what, wanted, remedy);
  };
  const auto wide = [&] { return values.to(at::kDouble); };
  if (!all_finite(weight.tensor.detach())) {
    refuse(wide().isfinite().logical_not(), "a finite number");
    refuse(weight.tensor.detach().cpu().isfinite().logical_not(),
           "a number that " + std::string(at::toString(weight.tensor.scalar_type())) + " can hold");
  }
  if (is_whole(weight)) {
    refuse(detail::is_no_whole_number(values), "a whole number", "leave it out of the file to count from 0");
  }
  if (weight.name.ends_with(kCounter) || weight.name.ends_with(kVariance)) refuse(wide().lt(0), "0 or more");
}

}  // namespace

WeightMatch match_weights(const StoredTensors& files, const std::string& file, const std::vector<Parameter>& weights,
                          const WeightRoles& roles, const std::string& prefix) {
  const auto begin = "weights is " + quote(file) + ": ";
  const auto own = by_name(weights);
  WeightMatch match{.file = file, .prefix = prefix_of(files, begin, own, roles, prefix)};
  for (const auto& [name, weight] : own) {
    const auto stored = match.prefix + name;
    if (!files.contains(stored)) {
      if (!name.ends_with(kCounter)) match.missing.push_back(name);
      continue;
    }
    check_type(begin, files.tensor(stored), *weight);
    const auto& there = files.tensor(stored);
    if (!serves(there, *weight, roles)) {
      match.other_sizes.push_back(name);
    } else if (!has_sizes(there, *weight)) {
      match.resampled.push_back(*find_resampled(roles.resampled, name));
    }
    match.stored[name] = stored;
  }
  match.unused = unused_of(files, match);
  check_missing(begin, match, roles);
  check_sizes(begin, match, roles, files, own);
  return match;
}

void fill_weights(const StoredTensors& files, const WeightMatch& match, const std::vector<Parameter>& weights) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::buffers);
  for (const auto& weight : weights) {
    const auto found = match.stored.find(weight.name);
    if (found == match.stored.end() || std::ranges::count(match.other_sizes, weight.name) > 0) continue;
    const auto box = weight.placement.box(weight.tensor.sizes());
    const auto values = stored_part(files, match, weight, box);
    weight.tensor.detach().copy_(values);
    check_values("weights is " + quote(match.file) + ": " + quote(found->second), values, weight, box);
  }
}

std::vector<std::string> lines_of(const WeightMatch& match, const StoredTensors& files,
                                  const std::vector<Parameter>& weights) {
  std::vector<std::string> lines;
  if (!match.prefix.empty()) {
    const auto others = std::to_string(match.unused.size()) + (match.unused.size() == 1 ? " other tensor" : " others") +
                        " left out: " + some_of(match.unused, 2);
    lines.push_back(quote(match.prefix) + " taken off the names" + (match.unused.empty() ? "" : "; " + others));
  }
  if (!match.missing.empty()) lines.push_back(some_of(match.missing) + " not there: start as drawn");
  const auto own = by_name(weights);
  for (const auto& name : match.other_sizes) {
    lines.push_back(difference(name, match, files, *own.at(name)) + ": starts as drawn");
  }
  for (const auto& resampled : match.resampled) {
    lines.push_back(difference(resampled.name, match, files, *own.at(resampled.name)) + ": resampled");
  }
  if (match.prefix.empty() && !match.unused.empty()) {
    lines.push_back(some_of(match.unused) + " left out: the model has no such weights");
  }
  return lines;
}

}  // namespace tandem::train
