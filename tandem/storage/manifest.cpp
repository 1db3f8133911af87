#include "tandem/storage/manifest.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/storage/checksum.h"
#include "tandem/storage/detail/json_text.h"

namespace tandem::storage {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tandem.checkpoint";
constexpr int64_t kVersion = 1, kVersionWithCard = 2;
constexpr int kMaxWorld = 1'000'000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// JSON has no infinity or NaN: such a number becomes {"number": "inf"}.
Json to_json(const Value& value) {
  if (const auto* real = std::get_if<double>(&value); real != nullptr && !std::isfinite(*real)) {
    return {{"number", std::isnan(*real) ? "nan" : *real > 0 ? "inf" : "-inf"}};
  }
  return std::visit([](const auto& held) { return Json(held); }, value);
}

std::string dump(const Json& json) { return json.dump(1) + "\n"; }

/// Typed access to one JSON object; each fault names file and field.
class Reader {
 public:
  Reader(const Json& object, std::string_view file, std::string where)
      : object_(object), file_(file), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& name, const std::string& found, const std::string& wanted) const {
    throw DataError(quote(file_) + ": " + where_ + name + " is " + found + ", wanted " + wanted,
                    "the file is damaged, use another copy");
  }

  const Json& at(const std::string& name, Json::value_t type, const char* wanted) const {
    const auto found = object_.find(name);
    if (found == object_.end()) fail(name, "missing", wanted);
    if (found->type() != type) fail(name, quote(found->dump()), wanted);
    return *found;
  }

  int64_t whole(const std::string& name, int64_t limit) const {
    const auto wanted = "a whole number up to " + std::to_string(limit);
    const auto value = at(name, Json::value_t::number_unsigned, wanted.c_str()).get<uint64_t>();
    if (value > static_cast<uint64_t>(limit)) fail(name, std::to_string(value), wanted);
    return static_cast<int64_t>(value);
  }

  const std::string& text(const std::string& name) const {
    return at(name, Json::value_t::string, "a text").get_ref<const std::string&>();
  }

  Reader object(const std::string& name) const {
    return {at(name, Json::value_t::object, "an object"), file_, where_ + name + "."};
  }

  Value value(const std::string& name) const {
    const auto& json = object_.at(name);
    if (json.is_boolean()) return json.get<bool>();
    if (json.is_number_float()) return json.get<double>();
    if (json.is_string()) return json.get<std::string>();
    if (json.is_number_integer() && !(json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)) {
      return json.get<int64_t>();
    }
    const auto special = json.is_object() && json.size() == 1 ? json.value("number", Json()) : Json();
    if (special == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (special == "inf") return kInfinity;
    if (special == "-inf") return -kInfinity;
    fail(name, quote(json.dump()), "a number, a text, true or false");
  }

  const Json& json() const { return object_; }

 private:
  const Json& object_;
  std::string_view file_;
  std::string where_;
};

std::string name_of_file(int number, int world) {
  return number < world ? rank_file_name(number) : number == world ? kIndexName : kCardName;
}

std::vector<CheckpointFile> read_files(const Reader& manifest, int world, bool has_card, std::string_view file) {
  const auto& list = manifest.at("files", Json::value_t::array, "a list");
  const int wanted = world + (has_card ? 2 : 1);
  if (list.size() != static_cast<size_t>(wanted)) {
    manifest.fail("files", std::to_string(list.size()) + " entries",
                  has_card ? "one a rank, the index and the model card" : "one a rank and the index");
  }
  std::vector<CheckpointFile> files;
  for (int i = 0; i < wanted; ++i) {
    const auto where = "files[" + std::to_string(i) + "]";
    if (!list[i].is_object()) manifest.fail(where, quote(list[i].dump()), "an object");
    const Reader entry(list[i], file, where + ".");
    const auto expected = name_of_file(i, world);
    if (entry.text("name") != expected) entry.fail("name", quote(entry.text("name")), quote(expected));
    files.push_back({expected, static_cast<uint64_t>(entry.whole("bytes", INT64_MAX)), entry.text("xxh3")});
  }
  return files;
}

Json describe(const Manifest& manifest) {
  Json json = {{"format", kFormat},
               {"version", manifest.card() != nullptr ? kVersionWithCard : kVersion},
               {"step", manifest.step},
               {"world", manifest.world}};
  json["job"] = Json::object();
  for (const auto& [key, value] : manifest.identity) json["job"][key] = value;
  json["trainer"] = Json::object();
  for (const auto& [key, value] : manifest.trainer) json["trainer"][key] = to_json(value);
  json["files"] = Json::array();
  for (const auto& [name, bytes, checksum] : manifest.files) {
    json["files"].push_back({{"name", name}, {"bytes", bytes}, {"xxh3", checksum}});
  }
  return json;
}

void check_text(const std::string& what, const std::string& text) {
  TORCH_CHECK_VALUE(is_utf8(text), what, " is ", quote(text), ", wanted UTF-8");
}

void check_names(const Manifest& manifest) {
  std::set<std::string> job, trainer;
  for (const auto& [key, value] : manifest.identity) {
    check_text("the job's key", key);
    check_text("the job's " + key, value);
    TORCH_CHECK_VALUE(job.insert(key).second, "the job's key ", quote(key), " is given twice, wanted it once");
  }
  for (const auto& [key, value] : manifest.trainer) {
    check_text("the trainer's key", key);
    if (const auto* text = std::get_if<std::string>(&value)) check_text("the trainer's " + key, *text);
    TORCH_CHECK_VALUE(trainer.insert(key).second, "the trainer's key ", quote(key), " is given twice, wanted it once");
  }
}

}  // namespace

std::string rank_file_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank_%04d.safetensors", rank);
  return name;
}

std::string format_manifest(const Manifest& manifest) {
  check_names(manifest);
  auto json = describe(manifest);
  json["xxh3"] = checksum_of(dump(json));
  return dump(json);
}

Manifest parse_manifest(std::string_view text, std::string_view file) {
  const auto json = detail::parse_ordered_json(text, file);
  const Reader reader(json, file, "");
  if (reader.text("format") != kFormat) reader.fail("format", quote(reader.text("format")), quote(kFormat));
  const auto version = reader.whole("version", INT64_MAX);
  if (version != kVersion && version != kVersionWithCard) {
    throw DataError(quote(file) + ": version is " + json["version"].dump() + ", wanted 1 or 2",
                    "read it with the release that wrote it");
  }
  Manifest manifest;
  manifest.step = reader.whole("step", INT64_MAX);
  manifest.world = static_cast<int>(reader.whole("world", kMaxWorld));
  const auto job = reader.object("job"), trainer = reader.object("trainer");
  for (const auto& [key, value] : job.json().items()) manifest.identity.emplace_back(key, job.text(key));
  for (const auto& [key, value] : trainer.json().items()) manifest.trainer.emplace_back(key, trainer.value(key));
  manifest.files = read_files(reader, manifest.world, version == kVersionWithCard, file);
  // There is only one way to write a manifest, so a text that differs was changed.
  if (format_manifest(manifest) != text) reader.fail("xxh3", quote(reader.text("xxh3")), "the text's own checksum");
  return manifest;
}

std::string format_shard_index(const std::map<std::string, std::string>& file_of_tensor, uint64_t total_bytes) {
  nlohmann::json json;
  json["metadata"]["total_size"] = total_bytes;
  json["weight_map"] = file_of_tensor;
  return json.dump(1) + "\n";
}

std::map<std::string, std::string> parse_shard_index(std::string_view text, std::string_view file) {
  const auto json = detail::parse_json(text, file);
  const auto fail = [&](const std::string& field, const std::string& found, const std::string& wanted) {
    throw DataError(quote(file) + ": " + field + " is " + found + ", wanted " + wanted,
                    "the file is damaged, use another copy");
  };
  const auto found = json.find("weight_map");
  if (found == json.end() || !found->is_object()) fail("weight_map", "missing", "an object of file names");
  std::map<std::string, std::string> file_of_tensor;
  for (const auto& [tensor, name] : found->items()) {
    if (!name.is_string()) fail("weight_map " + quote(tensor), quote(name.dump()), "a file name");
    const auto& place = name.get_ref<const std::string&>();
    const bool leads_out =
        place.empty() || place[0] == '.' || place.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos;
    if (leads_out) fail("weight_map " + quote(tensor), quote(place), "a file name in the same folder");
    file_of_tensor[tensor] = place;
  }
  return file_of_tensor;
}

}  // namespace tandem::storage
