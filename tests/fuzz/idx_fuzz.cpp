// libFuzzer: a file is rejected with DataError, or is an IDX array with as many values as its sizes say; the same of
// what a gzip stream holds.
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/data/record/gzip.h"
#include "tandem/data/record/idx_array.h"

using namespace tandem::data;

namespace {

constexpr uint64_t kMost = 1 << 20;

void check(std::span<const std::byte> file) {
  for (size_t dims = 1; dims <= 3; ++dims) {
    try {
      const auto array = parse_idx(file, dims, "fuzz");
      int64_t values = 1;
      for (const int64_t size : array.sizes) values *= size;
      if (array.sizes.size() != dims || values != static_cast<int64_t>(array.values.size())) std::abort();
    } catch (const tandem::DataError&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  check(file);
  try {
    const auto unpacked = gunzip(file, kMost, "fuzz");
    if (unpacked.size() > kMost) std::abort();
    check(unpacked);
  } catch (const tandem::DataError&) {
  }
  return 0;
}
