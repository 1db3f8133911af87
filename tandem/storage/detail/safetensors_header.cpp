#include "tandem/storage/detail/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::storage::detail {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxTensors = 1'000'000, kMaxDims = 16, kMaxNameBytes = 4096;
constexpr uint64_t kMaxWhole = std::numeric_limits<int64_t>::max();
constexpr const char* kMetadata = "__metadata__";

constexpr SafetensorsDtype kDtypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

[[noreturn]] void fail(std::string_view file, const std::string& field, const std::string& found,
                       const std::string& wanted) {
  throw DataError(quote(file) + ": " + field + " is " + found + ", wanted " + wanted,
                  "the file is damaged or no safetensors file, use another copy");
}

std::string range_text(uint64_t begin, uint64_t end) {
  std::string text = "[";
  text += std::to_string(begin);
  text += ',';
  text += std::to_string(end);
  return text += ']';
}

/// Accepts only the one nesting that a header may have; any other event is an error, so the depth is bounded.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view file, SafetensorsHeader& header) : file_(file), header_(header) {}

  bool null() override { reject("null"); }
  bool boolean(bool value) override { reject(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { reject(value == 0 ? "-0" : std::to_string(value)); }
  bool number_float(double, const std::string& digits) override { reject(digits.substr(0, 40)); }
  bool binary(binary_t&) override { reject("binary"); }

  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::shape) {
      if (value > kMaxWhole || dims_ == kMaxDims) reject(std::to_string(value));
      header_.entries.back().shape.push_back(static_cast<int64_t>(value));
      ++dims_;
    } else if (place_ == Place::offsets && num_offsets_ < 2) {
      (num_offsets_++ == 0 ? header_.entries.back().begin : header_.entries.back().end) = value;
    } else {
      reject(std::to_string(value));
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = value;
    } else if (place_ == Place::tensor && key_ == "dtype") {
      const auto* found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                       [&](const SafetensorsDtype& dtype) { return dtype.name == value; });
      if (found == std::end(kDtypes)) reject(quote(value));
      header_.entries.back().dtype = found->name;
    } else {
      reject(quote(value));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top && key_ == kMetadata) {
      place_ = Place::metadata;
    } else if (place_ == Place::top) {
      if (header_.entries.size() == kMaxTensors) reject("tensor " + std::to_string(kMaxTensors + 1));
      place_ = Place::tensor;
      header_.entries.emplace_back().name = key_;
      has_dtype_ = has_shape_ = has_offsets_ = false;
    } else {
      reject("an object");
    }
    return true;
  }

  bool key(std::string& value) override {
    key_ = value;
    if (place_ == Place::tensor) {
      bool* seen = value == "dtype"          ? &has_dtype_
                   : value == "shape"        ? &has_shape_
                   : value == "data_offsets" ? &has_offsets_
                                             : nullptr;
      if (seen == nullptr) fail(file_, tensor_name() + " field", quote(value), "dtype, shape or data_offsets");
      if (*seen) fail(file_, field(), "given twice", "it once");
      *seen = true;
    } else if (place_ == Place::top) {
      if (value.size() > kMaxNameBytes) fail(file_, "the name " + quote(value), "too long", "at most 4096 bytes");
      if (value.find('\0') != std::string::npos) fail(file_, "a name", quote(value), "no NUL in it");
      if (!names_.insert(value).second) fail(file_, "the name " + quote(value), "given twice", "it once");
    } else if (header_.metadata.contains(value)) {
      fail(file_, field(), "given twice", "it once");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor && !(has_dtype_ && has_shape_ && has_offsets_)) {
      const auto* missing = !has_dtype_ ? "dtype" : !has_shape_ ? "shape" : "data_offsets";
      fail(file_, tensor_name() + " " + missing, "missing", wanted(missing));
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::tensor && key_ == "shape") {
      place_ = Place::shape;
      dims_ = 0;
    } else if (place_ == Place::tensor && key_ == "data_offsets") {
      place_ = Place::offsets;
      num_offsets_ = 0;
    } else {
      reject("a list");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && num_offsets_ != 2) reject(std::to_string(num_offsets_) + " numbers");
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(file_, "the header's byte " + std::to_string(kLengthBytes + position), "not JSON", "a JSON object");
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  std::string tensor_name() const { return "tensor " + quote(header_.entries.back().name); }

  std::string field() const {
    switch (place_) {
      case Place::outside:
        return "the header";
      case Place::top:
        return quote(key_);
      case Place::metadata:
        return std::string(kMetadata) + " " + quote(key_);
      default:
        return tensor_name() + " " + key_;
    }
  }

  std::string wanted(std::string_view key) const {
    switch (place_) {
      case Place::outside:
        return "an object";
      case Place::top:
        return key == kMetadata ? "an object of texts" : "an object, one of at most 1000000";
      case Place::metadata:
        return "a text";
      default:
        break;
    }
    if (key == "shape") return "a list of at most 16 whole numbers from 0 to 2^63 - 1";
    if (key == "data_offsets") return "a list of two whole numbers from 0 to 2^64 - 1";
    std::string names;
    for (const auto& dtype : kDtypes) names.append(" ").append(dtype.name);
    return "one of" + names;
  }

  [[noreturn]] void reject(const std::string& found) const { fail(file_, field(), found, wanted(key_)); }

  std::string_view file_;
  SafetensorsHeader& header_;
  Place place_ = Place::outside;
  std::string key_;
  std::unordered_set<std::string> names_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  size_t dims_ = 0;
  int num_offsets_ = 0;
};

/// The number of bytes for dtype and shape; nullopt if it is not a whole number or does not fit 63 bits.
/// Zeros count as ones in the bound, so that the strides of an empty tensor fit too.
std::optional<uint64_t> wanted_bytes(const SafetensorsEntry& entry) {
  uint64_t bits = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const SafetensorsDtype& dtype) {
                    return dtype.name == entry.dtype;
                  })->bits;
  bool empty = false;
  for (const auto dim : entry.shape) {
    empty = empty || dim == 0;
    const auto factor = static_cast<uint64_t>(std::max<int64_t>(dim, 1));
    if (bits > kMaxWhole / factor) return {};
    bits *= factor;
  }
  if (empty) return 0;
  if (bits % 8 != 0) return {};
  return bits / 8;
}

std::string shape_text(const SafetensorsEntry& entry) {
  std::string text = std::string(entry.dtype) + " [";
  for (size_t i = 0; i < entry.shape.size(); ++i) text.append(i > 0 ? "," : "").append(std::to_string(entry.shape[i]));
  return text + "]";
}

void check_places(SafetensorsHeader& header, uint64_t data_bytes, std::string_view file) {
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t at = 0;
  for (const auto& entry : header.entries) {
    const std::string name = "tensor " + quote(entry.name);
    const auto bytes = wanted_bytes(entry);
    if (!bytes) fail(file, name + " shape", shape_text(entry), "whole bytes that fit 60 bits");
    const uint64_t wanted_end = at + *bytes;  // at <= data_bytes and bytes < 2^60: no overflow
    if (entry.begin != at || entry.end != wanted_end) {
      fail(file, name + " data_offsets", range_text(entry.begin, entry.end),
           range_text(at, wanted_end) + " for " + shape_text(entry));
    }
    if (wanted_end > data_bytes) {
      fail(file, name + " data_offsets", range_text(entry.begin, entry.end),
           "an end up to " + std::to_string(data_bytes) + ", where the file ends");
    }
    at = wanted_end;
  }
  if (at != data_bytes) {
    fail(file, "the size of the data", std::to_string(data_bytes), std::to_string(at) + ", where the last tensor ends");
  }
}

}  // namespace

std::span<const SafetensorsDtype> safetensors_dtypes() { return kDtypes; }

uint64_t safetensors_header_bytes(std::span<const std::byte> prefix, uint64_t file_size, std::string_view file) {
  if (file_size < kLengthBytes || prefix.size() < kLengthBytes) {
    fail(file, "the file's size", std::to_string(file_size), "at least 8 bytes");
  }
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    throw DataError(quote(file) + " is no safetensors file: it does not begin with the length of its header");
  }
  const uint64_t limit = std::min(kMaxHeaderBytes, file_size - kLengthBytes);
  if (length < 2 || length > limit) {
    fail(file, "the header's length", std::to_string(length), "2 to " + std::to_string(limit));
  }
  return kLengthBytes + length;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix, uint64_t file_size,
                                           std::string_view file) {
  SafetensorsHeader header;
  header.data_begin = safetensors_header_bytes(prefix, file_size, file);
  if (prefix.size() < header.data_begin) {
    fail(file, "the part that was read", std::to_string(prefix.size()) + " bytes", std::to_string(header.data_begin));
  }
  const auto* text = reinterpret_cast<const char*>(prefix.data()) + kLengthBytes;
  const auto* end = reinterpret_cast<const char*>(prefix.data()) + header.data_begin;
  if (*text != '{') fail(file, "the header's first byte", quote({text, 1}), "'{'");
  // The JSON parser takes NUL for the end and would ignore the rest.
  if (const auto* nul = std::find(text, end, '\0'); nul != end) {
    fail(file, "the header's byte " + std::to_string(kLengthBytes + (nul - text)), "NUL", "JSON");
  }
  HeaderReader reader(file, header);
  nlohmann::json::sax_parse(text, end, &reader);
  check_places(header, file_size - header.data_begin, file);
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  std::string out = "{";
  const auto separate = [&out] {
    if (out.back() != '{') out += ',';
  };
  const auto put_text = [&out](const std::string& text) { out += nlohmann::json(text).dump(); };
  if (!header.metadata.empty()) {
    out += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      separate();
      put_text(key);
      out += ':';
      put_text(value);
    }
    out += '}';
  }
  for (const auto& entry : header.entries) {
    separate();
    put_text(entry.name);
    out += ":{\"dtype\":\"";
    out += entry.dtype;
    out += "\",\"shape\":[";
    for (size_t i = 0; i < entry.shape.size(); ++i) {
      if (i > 0) out += ',';
      out += std::to_string(entry.shape[i]);
    }
    out += "],\"data_offsets\":";
    out += range_text(entry.begin, entry.end);
    out += '}';
  }
  out += "}";
  out.append((8 - out.size() % 8) % 8, ' ');
  const uint64_t length = out.size();
  out.insert(0, reinterpret_cast<const char*>(&length), kLengthBytes);
  return out;
}

}  // namespace tandem::storage::detail
