#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tandem::storage {

/// 128-bit XXH3, computed piece by piece. Detects damage, but not manipulation.
class Checksum {
 public:
  static constexpr size_t kHexDigits = 32;

  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void update(std::span<const std::byte> bytes);

  /// 32 lower-case digits, as `xxhsum -H2` prints them.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::string_view bytes);

}  // namespace tandem::storage
