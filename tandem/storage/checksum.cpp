#include "tandem/storage/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tandem::storage {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }

Checksum::~Checksum() = default;

void Checksum::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::string Checksum::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh3));
  std::string text;
  for (const auto byte : canonical.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string checksum_of(std::string_view bytes) {
  Checksum checksum;
  checksum.update(std::as_bytes(std::span(bytes)));
  return checksum.hex();
}

}  // namespace tandem::storage
