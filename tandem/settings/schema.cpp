#include "tandem/settings/schema.h"

#include <algorithm>

#include "tandem/base/suggest.h"

namespace tandem::settings {

const Setting* find_setting(Schema schema, std::string_view key) {
  const auto exact = std::ranges::find(schema, key, &Setting::key);
  if (exact != schema.end()) return &*exact;
  constexpr std::string_view kName = ".name";
  if (!key.ends_with(kName)) return nullptr;
  const auto section = key.substr(0, key.size() - kName.size());
  const auto it = std::ranges::find(schema, section, &Setting::key);
  return it != schema.end() && is_section(schema, section) ? &*it : nullptr;
}

bool is_section(Schema schema, std::string_view key) {
  const std::string prefix = std::string(key) + ".";
  return std::ranges::any_of(schema, [&](const Setting& setting) { return setting.key.starts_with(prefix); });
}

std::vector<std::string> similar_keys(Schema schema, std::string_view key) {
  const auto last_part = [](std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); };
  std::vector<std::string_view> keys, parts;
  for (const auto& setting : schema) {
    keys.push_back(setting.key);
    parts.push_back(last_part(setting.key));
  }
  if (auto found = nearest(key, keys); !found.empty()) return found;
  std::vector<std::string> found;
  const auto near_parts = nearest(last_part(key), parts);
  for (const auto candidate : keys) {
    const bool is_near = std::find(near_parts.begin(), near_parts.end(), last_part(candidate)) != near_parts.end();
    if (is_near && found.size() < 3) found.emplace_back(candidate);
  }
  return found;
}

}  // namespace tandem::settings
