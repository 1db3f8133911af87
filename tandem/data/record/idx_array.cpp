#include "tandem/data/record/idx_array.h"

#include <string>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

constexpr size_t kMagicBytes = 4, kSizeBytes = 4;
constexpr int kUnsignedBytes = 8;

[[noreturn]] void idx_fault(std::string_view name, const std::string& what) {
  throw DataError("'" + std::string(name) + "' " + what, "use another copy");
}

int byte_at(std::span<const std::byte> file, size_t at) { return std::to_integer<int>(file[at]); }

int64_t size_at(std::span<const std::byte> file, size_t at) {
  int64_t size = 0;
  for (size_t i = 0; i < kSizeBytes; ++i) size = size * 256 + byte_at(file, at + i);
  return size;
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> file, size_t dims, std::string_view name) {
  if (file.size() < kMagicBytes) {
    idx_fault(name, "has " + std::to_string(file.size()) + " bytes, wanted an IDX array");
  }
  if (byte_at(file, 0) != 0 || byte_at(file, 1) != 0)
    idx_fault(name, "is no IDX array: it does not begin with two zeros");
  if (byte_at(file, 2) != kUnsignedBytes) {
    idx_fault(name, "holds values of type " + std::to_string(byte_at(file, 2)) + ", wanted 8, unsigned bytes");
  }
  if (byte_at(file, 3) != static_cast<int>(dims)) {
    idx_fault(name, "has " + std::to_string(byte_at(file, 3)) + " dims, wanted " + std::to_string(dims));
  }
  const auto begin = kMagicBytes + dims * kSizeBytes;
  if (file.size() < begin) idx_fault(name, "is cut short in its header");
  IdxArray array{.sizes = {}, .values = file.subspan(begin)};
  const auto held = static_cast<int64_t>(array.values.size());
  int64_t wanted = 1;
  bool is_beyond = false;  // of what the file holds: larger products may overflow
  for (size_t dim = 0; dim < dims; ++dim) {
    array.sizes.push_back(size_at(file, kMagicBytes + dim * kSizeBytes));
    if (array.sizes.back() == 0) idx_fault(name, "has no values: dim " + std::to_string(dim) + " is 0");
    is_beyond |= wanted > held / array.sizes.back();
    if (!is_beyond) wanted *= array.sizes.back();
  }
  if (is_beyond)
    idx_fault(name, "is cut short: it holds " + std::to_string(held) + " values, fewer than its header says");
  if (wanted < held) {
    idx_fault(name, "is " + std::to_string(held - wanted) + " bytes longer than its header says");
  }
  return array;
}

}  // namespace tandem::data
