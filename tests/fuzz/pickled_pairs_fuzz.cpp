// libFuzzer: a pickle is rejected with DataError, or its images and flags come back equal when they are written again.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "tandem/base/error.h"
#include "tandem/data/record/pickled_pairs.h"

using namespace tandem::data;
using Bytes = std::span<const std::byte>;

namespace {

/// A pickle of protocol 3: EMPTY_LIST, MARK, BINBYTES each, APPENDS, the same with NEWTRUE and NEWFALSE, TUPLE2, STOP.
std::string pickle_of(const PickledPairs& pairs) {
  std::string out = "\x80\x03](";
  std::vector<std::byte> decoded;
  for (const auto& image : pairs.images) {
    const auto bytes = plain_bytes(image, decoded);
    const auto length = static_cast<uint32_t>(bytes.size());
    out.append("B").append(reinterpret_cast<const char*>(&length), sizeof length);
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  out += "e](";
  for (const bool same : pairs.same) out += same ? '\x88' : '\x89';
  return out += "e\x86.";
}

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const auto pairs = parse_pickled_pairs(file, "fuzz");
    if (pairs.images.size() != pairs.same.size() * 2) std::abort();
    const auto again = pickle_of(pairs);
    const auto second = parse_pickled_pairs(bytes_of(again), "fuzz");
    if (second.same != pairs.same || pickle_of(second) != again) std::abort();
    std::vector<std::byte> decoded;
    for (size_t i = 0; i < pairs.images.size(); ++i) {
      if (!std::ranges::equal(plain_bytes(pairs.images[i], decoded), second.images[i].stored)) std::abort();
    }
  } catch (const tandem::DataError&) {
  }
  return 0;
}
