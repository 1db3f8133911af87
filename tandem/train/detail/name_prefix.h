#pragma once
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::train::detail {

/// What stands before a model's names in a file in which another program has put the model under a name of its own:
///
///   conv1.weight  bn1.bias              module.backbone.conv1.weight  module.backbone.bn1.bias  n_averaged
///                                       ^^^^^^^^^^^^^^^^
struct NamePrefix {
  std::string prefix;                // "", or with a dot at its end
  std::vector<std::string> choices;  // several that fit equally well; none: `prefix` is it
};

/// Finds the prefix that begins with `chosen` and behind which the file has all of a model's names. `chosen` itself, ""
/// too, comes before all others. Of several, those for which `fits` is true come first. If no prefix has all names, it
/// is the one that has most, and at least half; else it is `chosen`.
NamePrefix find_prefix(const std::set<std::string>& stored, const std::set<std::string>& model, std::string_view chosen,
                       const std::function<bool(const std::string& prefix)>& fits);

}  // namespace tandem::train::detail
