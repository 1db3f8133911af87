#include "tandem/storage/detail/json_text.h"

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::storage::detail {
namespace {

constexpr int kMaxDepth = 8;

[[noreturn]] void fail(std::string_view file, const std::string& fault) {
  throw DataError(quote(file) + ": " + fault, "the file is damaged, use another copy");
}

template <class Json>
Json parse(std::string_view text, std::string_view file, size_t max_keys) {
  using Event = typename Json::parse_event_t;
  std::vector<std::unordered_set<std::string>> open_objects;
  const auto watch = [&](int depth, Event event, Json& parsed) {
    if (depth > kMaxDepth) fail(file, "the JSON is nested deeper than 8, wanted at most 8");
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.template get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second)
        fail(file, "the key " + quote(key) + " is given twice, wanted it once");
      if (open_objects.back().size() > max_keys) {
        fail(file, "an object has over " + std::to_string(max_keys) + " keys, wanted at most that many");
      }
    }
    return true;
  };
  // The JSON parser takes NUL for the end and would ignore the rest.
  if (text.find('\0') != std::string_view::npos) fail(file, "a byte is NUL, wanted JSON");
  try {
    auto json = Json::parse(text.begin(), text.end(), watch);
    if (!json.is_object()) fail(file, std::string("the JSON is ") + json.type_name() + ", wanted an object");
    return json;
  } catch (const typename Json::parse_error& error) {
    fail(file, "byte " + std::to_string(error.byte) + " is not JSON, wanted a JSON object");
  } catch (const typename Json::exception&) {  // a number that fits no type
    fail(file, "a number is out of range, wanted one that fits 64 bits");
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view file, size_t max_keys) {
  return parse<nlohmann::json>(text, file, max_keys);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view file, size_t max_keys) {
  return parse<nlohmann::ordered_json>(text, file, max_keys);
}

}  // namespace tandem::storage::detail
