#include "tandem/train/detail/name_prefix.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace tandem::train::detail {
namespace {

/// How many of the model's names the file has behind each prefix.
std::map<std::string, size_t> counts_of(const std::set<std::string>& stored, const std::set<std::string>& model) {
  std::map<std::string, size_t> counts;
  for (const auto& name : stored) {
    size_t begin = 0;
    do {
      if (model.contains(name.substr(begin))) ++counts[name.substr(0, begin)];
      begin = name.find('.', begin) + 1;
    } while (begin > 0);
  }
  return counts;
}

}  // namespace

NamePrefix find_prefix(const std::set<std::string>& stored, const std::set<std::string>& model, std::string_view chosen,
                       const std::function<bool(const std::string& prefix)>& fits) {
  NamePrefix found{.prefix = std::string(chosen)};
  std::vector<std::string> whole;
  size_t most = (model.size() + 1) / 2;
  for (const auto& [prefix, count] : counts_of(stored, model)) {
    if (!prefix.starts_with(chosen)) continue;
    if (count == model.size()) whole.push_back(prefix);
    if (count < most) continue;
    most = count + 1;
    found.prefix = prefix;
  }
  if (whole.empty()) return found;
  std::vector<std::string> fitting;
  std::ranges::copy_if(whole, std::back_inserter(fitting), fits);
  auto& best = fitting.empty() ? whole : fitting;
  found.prefix = best[0];
  if (best[0] != chosen && best.size() > 1) found.choices = std::move(best);
  return found;
}

}  // namespace tandem::train::detail
