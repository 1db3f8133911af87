#include "tandem/data/record/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <string>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

constexpr int kGzipOnly = 16;  // zlib: no other format

/// One gzip stream, or several one behind the other.
class Inflater {
 public:
  Inflater(std::span<const std::byte> file, std::string_view name) : file_(file), name_(name) {
    if (inflateInit2(&stream_, kGzipOnly + MAX_WBITS) != Z_OK) fault("cannot be unpacked: zlib does not start");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// The next bytes, as many as there is room for; fewer, perhaps none, at the end.
  size_t read(std::span<std::byte> room) {
    size_t done = 0;
    while (done < room.size() && !has_ended_) done += read_some(room.subspan(done));
    return done;
  }

 private:
  [[noreturn]] void fault(const std::string& what) const {
    throw DataError("'" + std::string(name_) + "' " + what, "use another copy");
  }

  size_t read_some(std::span<std::byte> room) {
    constexpr size_t kMost = std::numeric_limits<uInt>::max();
    const auto rest = file_.subspan(taken_);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest.data()));
    stream_.avail_in = static_cast<uInt>(std::min(rest.size(), kMost));
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = static_cast<uInt>(std::min(room.size(), kMost));
    const auto in = stream_.avail_in, out = stream_.avail_out;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    taken_ += in - stream_.avail_in;
    const size_t made = out - stream_.avail_out;
    if (status == Z_STREAM_END) {
      end_member();
    } else if (status != Z_OK) {
      if (status == Z_BUF_ERROR && taken_ == file_.size()) fault("is cut short: its gzip stream has no end");
      fault("is no gzip file, or a damaged one");
    } else if (made == 0 && taken_ == file_.size()) {
      fault("is cut short: its gzip stream has no end");
    }
    return made;
  }

  void end_member() {
    has_ended_ = taken_ == file_.size();
    if (has_ended_) return;
    const auto next = file_.subspan(taken_);
    const bool is_member = next.size() > 1 && next[0] == std::byte{0x1f} && next[1] == std::byte{0x8b};
    if (!is_member || inflateReset(&stream_) != Z_OK) fault("has bytes behind the end of its gzip stream");
  }

  std::span<const std::byte> file_;
  std::string_view name_;
  z_stream stream_{};
  size_t taken_ = 0;
  bool has_ended_ = false;
};

}  // namespace

std::vector<std::byte> gunzip(std::span<const std::byte> file, uint64_t most_bytes, std::string_view name) {
  constexpr size_t kFirst = 1 << 16;
  Inflater inflater(file, name);
  std::vector<std::byte> bytes;
  for (size_t size = 0;;) {
    // One more than the most, to see that there is more.
    bytes.resize(std::min<uint64_t>(std::max(kFirst, size + size / 2), most_bytes + 1));
    size += inflater.read(std::span(bytes).subspan(size));
    if (size > most_bytes) {
      throw DataError("'" + std::string(name) + "' holds more than " + std::to_string(most_bytes) + " bytes",
                      "a file that is not packed may be of any size");
    }
    if (size == bytes.size()) continue;
    bytes.resize(size);
    return bytes;
  }
}

}  // namespace tandem::data
