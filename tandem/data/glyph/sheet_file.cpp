#include "tandem/data/glyph/sheet_file.h"

#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "tandem/storage/file_io.h"

namespace tandem::data {
namespace {

static_assert(std::endian::native == std::endian::little, "sheets are written as they lie in memory");

struct SheetHeader {
  std::array<char, 8> magic;
  uint64_t key;
  uint32_t size, count;
  uint64_t checksum;
};
static_assert(sizeof(SheetHeader) == 32);

constexpr std::array<char, 8> kMagic = {'T', 'N', 'D', 'M', 'G', 'L', 'Y', 'F'};

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

/// The checksum of everything but the checksum itself.
uint64_t checksum(const SheetHeader& header, std::span<const std::byte> characters, std::span<const std::byte> pixels) {
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), &header, offsetof(SheetHeader, checksum));
  XXH3_64bits_update(state.get(), characters.data(), characters.size());
  XXH3_64bits_update(state.get(), pixels.data(), pixels.size());
  return XXH3_64bits_digest(state.get());
}

/// Several processes may draw the same sheet at once.
std::string own_suffix() {
  static std::atomic<unsigned> counter = 0;
  return "." + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp";
}

}  // namespace

std::variant<SheetView, std::string> parse_sheet(std::span<const std::byte> file, uint64_t key, int64_t size) {
  SheetHeader header;
  if (file.size() < sizeof header) return "it is " + std::to_string(file.size()) + " bytes long";
  std::memcpy(&header, file.data(), sizeof header);
  if (header.magic != kMagic) return "it does not begin with TNDMGLYF";
  if (header.key != key || header.size != static_cast<uint64_t>(size)) return "it is of another font";
  const uint64_t character_bytes = uint64_t{header.count} * sizeof(char32_t);
  const uint64_t pixel_bytes = uint64_t{header.count} * static_cast<uint64_t>(size) * static_cast<uint64_t>(size);
  const uint64_t wanted = sizeof header + character_bytes + pixel_bytes;
  if (file.size() != wanted) {
    return "it is " + std::to_string(file.size()) + " bytes long, wanted " + std::to_string(wanted);
  }
  const auto characters = file.subspan(sizeof header, character_bytes);
  const auto pixels = file.subspan(sizeof header + character_bytes);
  if (checksum(header, characters, pixels) != header.checksum) return "its checksum is wrong";
  return SheetView{{reinterpret_cast<const char32_t*>(characters.data()), header.count},
                   reinterpret_cast<const uint8_t*>(pixels.data())};
}

void write_sheet(const std::filesystem::path& file, const GlyphImages& images, uint64_t key, int64_t size) {
  const auto characters = std::as_bytes(std::span(images.characters));
  const auto pixels = std::as_bytes(std::span(images.pixels));
  SheetHeader header{kMagic, key, static_cast<uint32_t>(size), static_cast<uint32_t>(images.characters.size()), 0};
  header.checksum = checksum(header, characters, pixels);
  const std::array parts = {std::as_bytes(std::span(&header, 1)), characters, pixels};
  storage::write_file(file, parts, own_suffix());
}

}  // namespace tandem::data
