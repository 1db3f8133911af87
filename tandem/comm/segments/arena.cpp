#include "tandem/comm/segments/arena.h"

#include <algorithm>

namespace tandem::comm {
namespace {

constexpr int64_t kLine = 64, kLeast = 1 << 20;

int64_t in_lines(int64_t bytes) { return std::max<int64_t>(1, (bytes + kLine - 1) / kLine) * kLine; }

}  // namespace

Arena::Piece Arena::take(int64_t bytes) {
  const int64_t wanted = in_lines(bytes);
  for (auto& part : parts_) {
    const auto fits = [&](const auto& free) { return free.second >= wanted; };
    const auto found = std::ranges::find_if(part.free, fits);
    if (found == part.free.end()) continue;
    const auto [offset, room] = *found;
    part.free.erase(found);
    if (room > wanted) part.free.emplace(offset + wanted, room - wanted);
    return {part.segment.get(), part.bytes, offset, wanted};
  }
  // Each segment is as large as all before it: there are few.
  const int64_t size = in_lines(std::max({wanted, bytes_, kLeast}));
  parts_.push_back({std::make_unique<Segment>(Segment::create(size)), size, {{0, size}}});
  bytes_ += size;
  return take(bytes);
}

void Arena::give_back(const Piece& piece) {
  const auto is_its = [&](const Part& part) { return part.segment.get() == piece.segment; };
  auto& free = std::ranges::find_if(parts_, is_its)->free;
  auto [at, is_new] = free.emplace(piece.offset, piece.bytes);
  if (const auto next = std::next(at); next != free.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free.erase(next);
  }
  if (at == free.begin()) return;
  if (const auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    free.erase(at);
  }
}

}  // namespace tandem::comm
