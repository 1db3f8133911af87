#pragma once
#include <map>
#include <memory>
#include <vector>

#include "tandem/comm/segments/segment.h"

namespace tandem::comm {

/// Memory of this process that others may attach, given out in pieces. It grows to the most that was ever out at once,
/// and does not shrink. Does not use torch. Not thread-safe.
class Arena {
 public:
  struct Piece {
    Segment* segment = nullptr;
    int64_t segment_bytes = 0, offset = 0, bytes = 0;

    std::byte* data() const { return segment->data() + offset; }
  };

  /// Aligned to 64 bytes; what is in it is whatever was there. Throws std::system_error.
  Piece take(int64_t bytes);
  void give_back(const Piece& piece);

  /// Of all segments.
  int64_t bytes() const { return bytes_; }

 private:
  struct Part {
    std::unique_ptr<Segment> segment;
    int64_t bytes;
    std::map<int64_t, int64_t> free;  // where, and how many bytes
  };
  std::vector<Part> parts_;
  int64_t bytes_ = 0;
};

}  // namespace tandem::comm
