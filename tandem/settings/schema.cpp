#include "tandem/settings/schema.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "tandem/base/suggest.h"

namespace tandem::settings {

const Setting* find_setting(Schema schema, std::string_view key) {
  const auto exact = std::ranges::find(schema, key, &Setting::key);
  if (exact != schema.end()) return &*exact;
  const auto former = std::ranges::find(schema, key, &Setting::former_key);
  if (former != schema.end() && !key.empty()) return &*former;
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

namespace {

std::string_view last_part(std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); }

/// A key as other programs and people write it: in capitals, with dashes before it or for underscores, with spaces.
std::string usual_spelling(std::string_view key) {
  const auto begin = key.find_first_not_of(" -\xe2\x80\x93\x94"), end = key.find_last_not_of(' ');  // en and em dash
  std::string result;
  if (begin == key.npos) return result;
  for (const char c : key.substr(begin, end + 1 - begin)) {
    result += c == '-' ? '_' : c == '/' ? '.' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

/// Of "batch_size": the keys that end in one of its words, such as train.batch.
std::vector<std::string> keys_with_a_word_of(const std::vector<std::string_view>& keys, std::string_view part) {
  std::vector<std::string> found;
  while (!part.empty()) {
    const auto word = part.substr(0, part.find('_'));
    part.remove_prefix(std::min(word.size() + 1, part.size()));
    for (const auto key : keys) {
      if (last_part(key) == word && std::ranges::find(found, key) == found.end()) found.emplace_back(key);
    }
  }
  return found;
}

std::string initials(std::string_view words) {
  std::string letters;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i == 0 || words[i - 1] == ' ') letters += words[i];
  }
  return letters;
}

/// Of "learning_rate": the settings whose meaning has these words.
std::vector<std::string> keys_that_mean(Schema schema, std::string words) {
  std::ranges::replace(words, '_', ' ');
  std::vector<std::string> found;
  if (words.find(' ') == words.npos) return found;
  for (const auto& setting : schema) {
    if (setting.doc.find(words) != setting.doc.npos) found.emplace_back(setting.key);
  }
  std::vector<std::string> abbreviated;  // train.lr
  std::ranges::copy_if(found, std::back_inserter(abbreviated),
                       [&](const auto& key) { return last_part(key) == initials(words); });
  return abbreviated.empty() ? found : abbreviated;
}

}  // namespace

std::vector<std::string> similar_keys(Schema schema, std::string_view wrong) {
  constexpr size_t kMost = 3;
  const auto key = usual_spelling(wrong);
  if (const auto* setting = find_setting(schema, key)) return {std::string(setting->key)};
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
    if (is_near && found.size() < kMost) found.emplace_back(candidate);
  }
  if (found.empty()) found = keys_that_mean(schema, std::string(last_part(key)));
  if (found.empty()) found = keys_with_a_word_of(keys, last_part(key));
  if (found.size() > kMost) found.clear();
  return found;
}

}  // namespace tandem::settings
