#include "tests/storage/header_mutation.h"

#include <array>
#include <cstring>

#include "tandem/base/rng.h"

namespace tandem::storage {
namespace {

constexpr size_t kDataBytes = 30;

const std::array<std::string, 3> kSound = {
    R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]}})",
    R"({"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"F16","shape":[0,4],"data_offsets":[8,8]},"c":{"dtype":"U8","shape":[22],"data_offsets":[8,30]}})",
    R"({"x":{"dtype":"F4","shape":[4,5],"data_offsets":[0,10]},"y":{"dtype":"C64","shape":[1],"data_offsets":[10,18]},"z":{"dtype":"BOOL","shape":[3,4],"data_offsets":[18,30]}})"};

const std::array<std::string, 30> kTokens = {"0",
                                             "-1",
                                             "-0",
                                             "1.0",
                                             "1e2",
                                             "18446744073709551615",
                                             "18446744073709551616",
                                             "9223372036854775808",
                                             "24",
                                             "30",
                                             "[",
                                             "]",
                                             "{",
                                             "}",
                                             ",",
                                             ":",
                                             "null",
                                             "true",
                                             "[0,24]",
                                             "[2,3]",
                                             "\"F64\"",
                                             "\"shape\"",
                                             "\"w\"",
                                             "\"\\ud800\"",
                                             "\"\\u0000\"",
                                             "\"__metadata__\"",
                                             " ",
                                             "\"",
                                             "\\",
                                             "\"dtype\":\"F32\","};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : rng_(seed, 7) {}

  size_t below(size_t limit) { return limit == 0 ? 0 : rng_.next() % limit; }

  void change(std::string& json) {
    const size_t at = below(json.size() + 1), count = below(12);
    switch (below(7)) {
      case 0:
        if (at < json.size()) json[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        json.insert(at, kTokens[below(kTokens.size())]);
        break;
      case 2:
        json.erase(at, count);
        break;
      case 3:
        json.insert(below(json.size() + 1), std::string(json, at, count));
        break;
      case 4:
        replace_number(json);
        break;
      case 5:
        json.insert(at, 1, static_cast<char>(below(256)));
        break;
      default:
        json.insert(at, 1, below(2) ? ' ' : '\n');
        break;
    }
  }

 private:
  void replace_number(std::string& json) {
    const auto begin = json.find_first_of("0123456789", below(json.size() + 1));
    if (begin == std::string::npos) return;
    const auto end = json.find_first_not_of("0123456789", begin);
    json.replace(begin, end == std::string::npos ? 1 : end - begin, kTokens[below(10)]);
  }

  CounterRng rng_;
};

}  // namespace

std::string safetensors_bytes(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += json;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i % 2);
  return file;
}

std::string mutated_file(uint64_t seed) {
  Mutator mutator(seed);
  auto json = kSound[seed % kSound.size()];
  for (size_t left = mutator.below(5); left > 0; --left) mutator.change(json);
  auto file = safetensors_bytes(json, kDataBytes);
  if (mutator.below(20) == 0) file[mutator.below(8)] ^= static_cast<char>(1 << mutator.below(8));
  if (mutator.below(20) == 0) file.resize(mutator.below(file.size() + 40));
  return file;
}

}  // namespace tandem::storage
