#include "tandem/data/glyph/sheet_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

static_assert(std::endian::native == std::endian::little, "sheets are written as they lie in memory");

struct Header {
  std::array<char, 8> magic;
  uint64_t key;
  uint32_t size, count;
  uint64_t checksum;
};
static_assert(sizeof(Header) == 32);

constexpr std::array<char, 8> kMagic = {'T', 'N', 'D', 'M', 'G', 'L', 'Y', 'F'};

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

/// Over everything but the checksum itself.
uint64_t checksum(const Header& header, std::span<const std::byte> characters, std::span<const std::byte> pixels) {
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), &header, offsetof(Header, checksum));
  XXH3_64bits_update(state.get(), characters.data(), characters.size());
  XXH3_64bits_update(state.get(), pixels.data(), pixels.size());
  return XXH3_64bits_digest(state.get());
}

/// A new file that disappears again unless it is given its final name.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path target) : target_(std::move(target)) {
    static std::atomic<unsigned> counter = 0;
    path_ = target_;
    path_ += "." + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp";
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) fail();
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  void commit() {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0 || ::rename(path_.c_str(), target_.c_str()) != 0) fail();
    path_.clear();
  }

 private:
  [[noreturn]] void fail() const {
    throw IoError("file '" + target_.string() + "' cannot be written (" + std::strerror(errno) + ")");
  }

  std::filesystem::path target_, path_;
  int fd_ = -1;
};

}  // namespace

std::variant<SheetView, std::string> parse_sheet(std::span<const std::byte> file, uint64_t key, int64_t size) {
  Header header;
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
  Header header{kMagic, key, static_cast<uint32_t>(size), static_cast<uint32_t>(images.characters.size()), 0};
  header.checksum = checksum(header, characters, pixels);
  TemporaryFile temporary(file);
  temporary.write(std::as_bytes(std::span(&header, 1)));
  temporary.write(characters);
  temporary.write(pixels);
  temporary.commit();
}

}  // namespace tandem::data
