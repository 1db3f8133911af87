#include "tandem/train/checkpoint.h"

#include <ATen/ATen.h>

#include <limits>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/joint_work.h"
#include "tandem/train/detail/stored_part.h"

namespace tandem::train {
namespace {

/// Each part of a tensor is written by the rank whose copy counts.
void write_own(CheckpointStore& store, int64_t step, const TrainingState& state, int rank) {
  std::vector<storage::NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::map<std::string, int> num_parts;
  for (const auto& [name, tensor, placement] : state.tensors) {
    if (!placement.counts_on(rank)) continue;
    const auto stored = placement.splits.empty() ? name : detail::name_of_part(name, rank, num_parts[name]++);
    tensors.push_back({stored, tensor.detach()});
    detail::put_splits(metadata, stored, placement.splits);
  }
  if (rank == 0 && state.card.class_names.defined()) tensors.push_back({kClassNames, state.card.class_names});
  store.write_rank(step, rank, tensors, metadata);
}

/// Runs `action`. If it throws, returns words(exception), else "".
template <class Action, class Words>
std::string failure_of(Action action, Words words) {
  try {
    action();
  } catch (const std::exception& error) {
    return words(error);
  }
  return "";
}

/// Runs `action` on each rank; it may take longer than the group's timeout. Returns, on all ranks, the failure of the
/// first rank that has one, or "". `words` turns an exception into a text. Collective.
template <class Action, class Words>
std::string first_failure(comm::ProcessGroup& group, Action action, Words words) {
  comm::JointWork work(group);
  const auto own = failure_of(action, words);
  const auto culprit = work.end(own.empty() ? group.size() : group.rank());
  if (culprit == group.size()) return "";
  const auto failure = comm::broadcast_text(own, static_cast<int>(culprit), group);
  if (group.size() == 1) return failure;
  return failure + " (rank " + std::to_string(culprit) + " of " + std::to_string(group.size()) + ")";
}

/// As first_failure(), but only rank 0 runs `action`.
template <class Action>
std::string failure_of_leader(comm::ProcessGroup& group, Action action) {
  const auto lead = [&] {
    if (group.rank() == 0) action();
  };
  return first_failure(group, lead, message_of);
}

void fill(const TrainingState& state, const CheckpointReader& checkpoint, const comm::ProcessGroup& group) {
  std::set<std::string> names;
  for (const auto& [name, tensor, placement] : state.tensors) {
    names.insert(name);
    checkpoint.read_into(name, placement, tensor);
  }
  checkpoint.verify_others(names, group.rank(), group.size());
}

/// Rank 0 looks for candidates. All ranks read each candidate, and accept it together or skip it together.
class JointSearch {
 public:
  JointSearch(const CheckpointStore& store, comm::ProcessGroup& group, const CheckpointRead& read)
      : store_(store), group_(group), read_(read) {}

  std::optional<storage::Manifest> lead(const storage::Identity& job, std::optional<int64_t> newest) {
    std::vector<std::string> notes;
    std::optional<comm::JointWork> looking(std::in_place, group_);
    const auto found = store_.find_newest(job, notes, newest, [&](const CheckpointStore::Found& candidate) {
      looking->end(candidate.step);
      looking.reset();
      const auto fault = read_all(candidate.step);
      if (fault) looking.emplace(group_);
      return fault;
    });
    for (const auto& note : notes) log::warn(note);
    if (looking) looking->end(kNone);
    return found ? std::optional(found->manifest) : std::nullopt;
  }

  std::optional<storage::Manifest> follow() {
    for (;;) {
      const auto step = comm::JointWork(group_).end(kNone);
      if (step == kNone) return {};
      if (!read_all(step)) return manifest_;
    }
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  std::optional<std::string> read_all(int64_t step) {
    const auto read_own = [&] {
      const CheckpointReader checkpoint(store_, step);
      manifest_ = checkpoint.manifest();
      read_(checkpoint);
    };
    auto failure = first_failure(group_, read_own, fault_words);
    return failure.empty() ? std::nullopt : std::optional(std::move(failure));
  }

  const CheckpointStore& store_;
  comm::ProcessGroup& group_;
  const CheckpointRead& read_;
  storage::Manifest manifest_;
};

}  // namespace

bool save_checkpoint(CheckpointStore& store, int64_t step, const TrainingState& state, comm::ProcessGroup& group) {
  auto failure = failure_of_leader(group, [&] { store.begin(step); });
  if (failure.empty()) {
    failure = first_failure(
        group, [&] { write_own(store, step, state, group.rank()); }, message_of);
  }
  if (failure.empty()) {
    failure = failure_of_leader(group, [&] {
      store.commit(
          {.step = step, .world = group.size(), .identity = state.identity, .trainer = state.trainer, .files = {}},
          state.card.text);
    });
  }
  if (failure.empty()) return true;
  failure_of_leader(group, [&] {
    store.abandon(step);
    log::warn("checkpoint of step " + std::to_string(step) + " could not be saved, training goes on: " + failure);
  });
  return false;
}

std::optional<storage::Manifest> find_checkpoint(const CheckpointStore& store, const storage::Identity& job,
                                                 std::optional<int64_t> newest, const CheckpointRead& read,
                                                 comm::ProcessGroup& group) {
  JointSearch search(store, group, read);
  return group.rank() == 0 ? search.lead(job, newest) : search.follow();
}

storage::Manifest read_checkpoint(const CheckpointStore& store, const storage::Identity& job, int64_t step,
                                  const CheckpointRead& read, comm::ProcessGroup& group) {
  storage::Manifest manifest;
  const auto read_own = [&](const CheckpointStore::Found& found) -> std::optional<std::string> {
    manifest = found.manifest;
    auto fault = failure_of([&] { read(CheckpointReader(store, step)); }, fault_words);
    return fault.empty() ? std::nullopt : std::optional(std::move(fault));
  };
  const auto check = [&] {
    if (const auto fault = store.verify(step, job, read_own)) throw DataError(*fault);
  };
  const auto fault = first_failure(group, check, message_of);
  if (!fault.empty()) throw fault_of_named(store.path(step), fault);
  return manifest;
}

DataError fault_of_named(const std::filesystem::path& checkpoint, const std::string& fault) {
  return DataError("checkpoint " + quote(checkpoint.string()) + " " + fault, "name another one, or the run's folder");
}

std::optional<Restored> load_checkpoint(const CheckpointStore& store, const TrainingState& state,
                                        std::optional<int64_t> newest, comm::ProcessGroup& group) {
  const auto found = find_checkpoint(
      store, state.identity, newest, [&](const CheckpointReader& checkpoint) { fill(state, checkpoint, group); },
      group);
  if (!found) return std::nullopt;
  return Restored{found->step, found->trainer};
}

}  // namespace tandem::train
