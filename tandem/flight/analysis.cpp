#include "tandem/flight/analysis.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/flight/call_info.h"

namespace tandem::flight {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Call {
  std::string group, operation, type, detail, where, state;
  int64_t sequence = 0;
  int peer = -1;
  std::vector<int64_t> shape;
  double seconds = 0;

  bool is_message() const { return operation == "send" || operation == "recv"; }
};

struct Record {
  int rank = 0, size = 0;
  std::string fault;
  double began = 0, seconds = 0;  // when the run began, and when the record was written
  std::map<std::string, std::vector<int>> groups;
  std::vector<Call> calls;
};

using Records = std::map<int, Record>;

Call read_call(const Json& json) {
  Call call;
  json.at("group").get_to(call.group);
  json.at("operation").get_to(call.operation);
  json.at("type").get_to(call.type);
  json.at("detail").get_to(call.detail);
  json.at("where").get_to(call.where);
  json.at("state").get_to(call.state);
  json.at("sequence").get_to(call.sequence);
  json.at("peer").get_to(call.peer);
  json.at("shape").get_to(call.shape);
  json.at("seconds").get_to(call.seconds);
  return call;
}

Record read_record(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("flight record '" + path.string() + "' cannot be read");
  try {
    const auto json = Json::parse(file);
    if (json.at("format") != "tandem-flight-1") throw DataError("");
    Record record;
    json.at("rank").get_to(record.rank);
    json.at("size").get_to(record.size);
    json.at("fault").get_to(record.fault);
    json.at("began").get_to(record.began);
    json.at("seconds").get_to(record.seconds);
    json.at("groups").get_to(record.groups);
    for (const auto& call : json.at("calls")) record.calls.push_back(read_call(call));
    return record;
  } catch (const std::exception&) {
    throw DataError("flight record '" + path.string() + "' is not one of tandem's, wanted a flight_rank_*.json",
                    "remove it");
  }
}

/// Drops the records of earlier runs. A rank that was killed or suspended writes no record, so its old one is still
/// there.
void drop_older_runs(Records& records) {
  const auto newest =
      std::ranges::max_element(records, {}, [](const Records::value_type& entry) { return entry.second.seconds; });
  const double began = newest->second.began;
  std::erase_if(records, [&](const auto& entry) { return entry.second.seconds < began; });
}

Records read_records(const fs::path& folder) {
  std::error_code fault;
  Records records;
  for (fs::directory_iterator entry(folder, fault), end; !fault && entry != end; entry.increment(fault)) {
    const auto name = entry->path().filename().string();
    if (!name.starts_with("flight_rank_") || entry->path().extension() != ".json") continue;
    auto record = read_record(entry->path());
    records[record.rank] = std::move(record);
  }
  if (fault) throw IoError("folder '" + folder.string() + "' cannot be read (" + fault.message() + ")");
  if (records.empty()) {
    throw DataError("folder '" + folder.string() + "' holds no flight records, wanted flight_rank_*.json",
                    "a run writes them into its folder's flight/ when communication fails");
  }
  drop_older_runs(records);
  return records;
}

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

/// "all_reduce #50 of Float [1000] at trainer.cpp:93".
std::string words(const Call& call) {
  std::string text = call.operation + " #" + std::to_string(call.sequence);
  if (!call.type.empty()) text += " of " + tensor_words(call.type, call.shape);
  if (!call.detail.empty()) text += " (" + call.detail + ")";
  if (call.peer >= 0) {
    text += call.operation == "send" ? " to rank " : call.operation == "recv" ? " from rank " : " with root ";
    text += std::to_string(call.peer);
  }
  text += " at " + call.where;
  return call.group == "world" ? text : text + " in group '" + call.group + "'";
}

const Call* find(const Record& record, const std::string& group, int64_t sequence) {
  for (const auto& call : record.calls) {
    if (!call.is_message() && call.group == group && call.sequence == sequence) return &call;
  }
  return nullptr;
}

const Call* last_of(const Record& record, const std::string& group) {
  const Call* last = nullptr;
  for (const auto& call : record.calls) {
    if (!call.is_message() && call.group == group && (!last || call.sequence > last->sequence)) last = &call;
  }
  return last;
}

/// The ranks that have written no record.
std::vector<int> silent_ranks(const Records& records) {
  std::vector<int> silent;
  for (int rank = 0; rank < records.begin()->second.size; ++rank) {
    if (!records.contains(rank)) silent.push_back(rank);
  }
  return silent;
}

/// The first unfinished call over all ranks: the one that hangs.
struct Stuck {
  int rank = 0;
  Call call;
};

std::optional<Stuck> first_stuck(const Records& records) {
  std::optional<Stuck> first;
  for (const auto& [rank, record] : records) {
    for (const auto& call : record.calls) {
      if (call.state != "done" && (!first || call.seconds < first->call.seconds)) first = Stuck{rank, call};
    }
  }
  return first;
}

bool is_same_call(const Call& a, const Call& b) {
  if (a.operation != b.operation || a.type != b.type || a.detail != b.detail || a.peer != b.peer) return false;
  const bool may_differ =
      a.operation == "all_gather" || a.operation == "gather" || a.operation == "scatter" || a.operation == "all_to_all";
  return may_differ || a.shape == b.shape;
}

/// Finds a rank that made another call than the other ranks at the same place in the sequence.
std::optional<std::string> mismatch(const Records& records) {
  std::optional<std::string> found;
  double when = 0;
  for (const auto& [rank, record] : records) {
    for (const auto& call : record.calls) {
      if (call.is_message() || (found && call.seconds >= when)) continue;
      std::vector<int> others, equal;
      const Call* other = nullptr;
      for (const auto& [peer, peers_record] : records) {
        const auto* theirs = peer == rank ? nullptr : find(peers_record, call.group, call.sequence);
        if (!theirs) continue;
        if (is_same_call(call, *theirs)) {
          equal.push_back(peer);
        } else {
          others.push_back(peer);
          other = theirs;
        }
      }
      if (!other || others.size() < equal.size() + 1) continue;  // this rank is in the majority
      found = list({rank}) + " called " + words(call) + " where " + list(others) + " called " + words(*other);
      when = call.seconds;
    }
  }
  return found;
}

/// Finds a rank that ended the job by an error other than a failure of communication.
std::optional<std::string> own_fault(const Records& records) {
  const Record* first = nullptr;
  for (const auto& [rank, record] : records) {
    const bool waits = std::ranges::any_of(record.calls, [](const Call& call) { return call.state == "failed"; });
    if (!waits && (!first || record.seconds < first->seconds)) first = &record;
  }
  if (!first) return std::nullopt;
  const auto& calls = first->calls;
  return list({first->rank}) + " ended by itself: " + first->fault +
         (calls.empty() ? "" : "; its last call was " + words(calls.back()));
}

std::string no_record(const std::vector<int>& ranks) {
  return list(ranks) + " left no record (killed, stopped, ended early, or its machine is gone)";
}

/// Says what a rank did instead.
std::string whereabouts(const Record& record, const std::string& group) {
  const auto who = list({record.rank});
  for (const auto& call : record.calls) {
    if (call.state != "done") return who + " waited in " + words(call);
  }
  const auto* last = last_of(record, group);
  return last ? "the last call of " + who + " there was " + words(*last) : who + " had made no call there";
}

constexpr double kAtOnce = 1;  // seconds, on a busy machine

std::string seconds_words(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

/// When the first of the ranks gave up.
double first_end(const Records& records, const std::vector<int>& ranks) {
  double first = records.at(ranks[0]).seconds;
  for (const int rank : ranks) first = std::min(first, records.at(rank).seconds);
  return first;
}

/// Finds ranks that entered a call when others, which had waited there, had given up.
std::optional<std::string> came_late(const Records& records, const std::vector<int>& ranks, const Call& call) {
  const auto entered = [&](int rank) { return find(records.at(rank), call.group, call.sequence)->seconds; };
  const double end = first_end(records, ranks);
  const double waited = end - entered(*std::ranges::min_element(ranks, {}, entered));
  std::vector<int> late, others;
  for (const int rank : ranks) (entered(rank) > end ? late : others).push_back(rank);
  if (late.empty() || waited < kAtOnce) return std::nullopt;
  return list(late) + " came too late: " + list(others) + " gave up in " + words(call) + " after " +
         seconds_words(waited) + ", and " + list({late[0]}) + " entered it " + seconds_words(entered(late[0]) - end) +
         " later";
}

/// Finds ranks that were suspended in a call that all ranks had entered. The rank that gives up first closes its
/// connections; the others notice this at once, unless they are suspended.
std::optional<std::string> stood_still(const Records& records, const std::vector<int>& ranks, const Call& call) {
  const auto found_out = [&](int rank) { return records.at(rank).seconds; };
  const double first = first_end(records, ranks);
  std::vector<int> late, others;
  for (const int rank : ranks) (found_out(rank) - first > kAtOnce ? late : others).push_back(rank);
  if (late.empty()) return std::nullopt;
  return list(late) + " stood still (suspended, or its machine was): " + list(others) + " gave up in " + words(call) +
         ", which all ranks had entered, and " + list({late[0]}) + " noticed it " +
         seconds_words(found_out(late[0]) - first) + " later";
}

std::string behind(const Records& records, const Stuck& stuck) {
  const auto& groups = records.at(stuck.rank).groups;
  const auto members = groups.find(stuck.call.group);
  std::vector<int> missing, silent, waiting;
  if (members != groups.end()) {
    for (const int rank : members->second) {
      const auto record = records.find(rank);
      if (record == records.end()) {
        silent.push_back(rank);
      } else if (find(record->second, stuck.call.group, stuck.call.sequence)) {
        waiting.push_back(rank);
      } else {
        missing.push_back(rank);
      }
    }
  }
  if (!missing.empty()) {
    return list(missing) + " never entered " + words(stuck.call) + ", in which " + list(waiting) + " waited; " +
           whereabouts(records.at(missing[0]), stuck.call.group);
  }
  if (!silent.empty()) {
    return no_record(silent) + " while " + list(waiting) + " waited in " + words(stuck.call);
  }
  if (!waiting.empty()) {
    if (const auto text = came_late(records, waiting, stuck.call)) return *text;
    if (const auto text = stood_still(records, waiting, stuck.call)) return *text;
  }
  return "all ranks entered " + words(stuck.call) + ", which failed: " + records.at(stuck.rank).fault;
}

std::string message_stuck(const Records& records, const Stuck& stuck) {
  const auto& call = stuck.call;
  const auto who = list({stuck.rank}) + " waited in " + words(call);
  const auto& members = records.at(stuck.rank).groups.at(call.group);
  const int peer = members.at(call.peer);
  const auto record = records.find(peer);
  const auto verb = call.operation == "recv" ? "sent" : "received";
  if (record == records.end()) return no_record({peer}) + " while " + who;
  int64_t count = 0;
  for (const auto& other : record->second.calls) {
    const bool is_counterpart = other.is_message() && other.operation != call.operation && other.group == call.group &&
                                members.at(other.peer) == stuck.rank;
    if (is_counterpart) count = std::max(count, other.sequence);
  }
  return list({peer}) + " never " + verb + " message #" + std::to_string(call.sequence) + ", for which " + who +
         "; it has " + verb + " " + std::to_string(count);
}

}  // namespace

std::string diagnose_flight(const fs::path& folder) {
  const auto records = read_records(folder);
  if (const auto words = mismatch(records)) return *words;
  if (const auto fault = own_fault(records)) return *fault;
  const auto stuck = first_stuck(records);
  if (!stuck) {
    const auto silent = silent_ranks(records);
    if (!silent.empty()) return list(silent) + " left no record; no rank waited in a call";
    return "no call is unfinished: " + records.begin()->second.fault;
  }
  return stuck->call.is_message() ? message_stuck(records, *stuck) : behind(records, *stuck);
}

}  // namespace tandem::flight
