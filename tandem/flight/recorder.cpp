#include "tandem/flight/recorder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/base/context.h"
#include "tandem/storage/file_io.h"

namespace tandem::flight {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Drops groups without a call in the ring, which do not help the reader of the record.
template <class Groups, class Entries>
void forget_silent(Groups& groups, const Entries& entries) {
  std::set<std::string_view> called;
  for (const auto& entry : entries) called.insert(entry.group);
  std::erase_if(groups, [&](const auto& group) { return !called.contains(group.first); });
}

constexpr const char* kStateNames[] = {"waiting", "done", "failed"};

}  // namespace

FlightRecorder::FlightRecorder(int rank, int size, size_t capacity)
    : rank_(rank), size_(size), began_(now_seconds()), entries_(capacity) {}

uint64_t FlightRecorder::begin(const std::string& group, const std::vector<int>& members, int64_t sequence,
                               const CallInfo& call) {
  const std::lock_guard lock(mutex_);
  const bool is_known = std::ranges::any_of(groups_, [&](const auto& known) { return known.first == group; });
  if (!is_known) {
    forget_silent(groups_, entries_);
    groups_.emplace_back(group, members);
  }
  auto& entry = entries_[next_ % entries_.size()];
  entry.number = ++next_;
  entry.group = group;  // reuses the older entry's memory: no allocation once the ring is full
  entry.sequence = sequence;
  entry.call = call;
  entry.phase = current_context().phase;
  entry.state = State::waiting;
  entry.seconds = now_seconds();
  return entry.number;
}

void FlightRecorder::end(uint64_t number, State state) {
  const std::lock_guard lock(mutex_);
  auto& entry = entries_[(number - 1) % entries_.size()];
  if (entry.number == number) entry.state = state;
}

void FlightRecorder::set_folder(const std::filesystem::path& folder) {
  const std::lock_guard lock(mutex_);
  folder_ = folder.empty() ? std::nullopt : std::optional(folder);
}

std::string FlightRecorder::to_json(const std::string& fault) const {
  const std::lock_guard lock(mutex_);
  nlohmann::json calls = nlohmann::json::array(), groups = nlohmann::json::object();
  for (const auto& [name, members] : groups_) groups[name] = members;
  const uint64_t first = next_ > entries_.size() ? next_ - entries_.size() : 0;
  for (uint64_t i = first; i < next_; ++i) {
    const auto& entry = entries_[i % entries_.size()];
    calls.push_back({{"group", entry.group},
                     {"sequence", entry.sequence},
                     {"operation", entry.call.operation},
                     {"shape", entry.call.shape},
                     {"type", entry.call.type},
                     {"peer", entry.call.peer},
                     {"detail", entry.call.detail},
                     {"where", entry.call.place()},
                     {"phase", kPhaseNames[static_cast<size_t>(entry.phase)]},
                     {"state", kStateNames[static_cast<size_t>(entry.state)]},
                     {"seconds", entry.seconds}});
  }
  const nlohmann::json record = {{"format", "tandem-flight-1"},
                                 {"rank", rank_},
                                 {"size", size_},
                                 {"fault", fault},
                                 {"groups", groups},
                                 {"began", began_},
                                 {"seconds", now_seconds()},
                                 {"calls", calls}};
  return record.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::filesystem::path FlightRecorder::write(const std::string& fault) noexcept {
  try {
    std::filesystem::path folder;
    {
      const std::lock_guard lock(mutex_);
      if (!folder_ || (is_tried_ && !is_written_)) return {};
      if (is_written_) return *folder_;
      is_tried_ = true;
      folder = *folder_;
    }
    write_file(folder, fault);
    const std::lock_guard lock(mutex_);
    is_written_ = true;
    return folder;
  } catch (...) {
    return {};  // the fault itself is reported elsewhere and must not be hidden by a failed write
  }
}

void FlightRecorder::write_file(const std::filesystem::path& folder, const std::string& fault) {
  char name[64];
  std::snprintf(name, sizeof name, "flight_rank_%04d.json", rank_);
  storage::make_own_folder(folder);
  storage::write_text_file(folder / name, to_json(fault));
}

}  // namespace tandem::flight
