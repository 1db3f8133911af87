#pragma once
#include <unistd.h>

#include <functional>

#include "tandem/comm/local/local_exchange.h"
#include "tandem/comm/segments/segment_mailbox.h"
#include "tandem/comm/segments/stage.h"

namespace tandem::comm::test {

/// The stages of `size` ranks, all in this process, with room for mailboxes. They see their segments at the same
/// addresses, which lets ThreadSanitizer see who writes while another reads.
inline std::vector<std::unique_ptr<Stage>> shared_stages(int size, std::chrono::milliseconds timeout) {
  std::vector<std::shared_ptr<Segment>> segments;
  for (int rank = 0; rank < size; ++rank) {
    const auto bytes = Stage::segment_bytes(size) + SegmentMailbox::box_bytes(size);
    segments.push_back(std::make_shared<Segment>(Segment::create(bytes)));
  }
  std::vector<std::unique_ptr<Stage>> stages;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<Stage::Member> members;
    for (const auto& segment : segments) members.push_back({segment, ProcessWatch(getpid())});
    stages.push_back(std::make_unique<Stage>(rank, std::move(members), timeout));
  }
  return stages;
}

/// What `body` fails with.
inline std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const LocalFailure& failure) {
    return failure.text;
  }
  return "nothing thrown";
}

}  // namespace tandem::comm::test
