#include "tandem/train/checkpoint.h"

#include <ATen/ATen.h>

#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/comm/collectives.h"
#include "tandem/train/checkpoint_reader.h"

namespace tandem::train {
namespace {

std::string stored_name(const Parameter& tensor, int rank) {
  return tensor.rows ? name_of_part(tensor.name, rank) : tensor.name;
}

void write_own(CheckpointStore& store, int64_t step, const TrainingState& state, int rank) {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
  for (const auto& tensor : state.tensors) {
    if (!tensor.rows && rank != 0) continue;
    const auto name = stored_name(tensor, rank);
    tensors.push_back({name, tensor.tensor.detach()});
    if (tensor.rows) put_rows(metadata, name, *tensor.rows);
  }
  store.write_rank(step, rank, tensors, metadata);
}

/// Runs `action`; the result is the failure's text, or empty.
template <class Action>
std::string failure_of(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    return message_of(error);
  }
  return "";
}

/// The root's text on all ranks. Collective.
std::string text_of_rank(const std::string& own, int root, comm::ProcessGroup& group) {
  auto length = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
  comm::broadcast_(length, root, group);
  auto bytes = at::zeros({length.item<int64_t>()}, at::kByte);
  if (group.rank() == root) std::memcpy(bytes.data_ptr(), own.data(), own.size());
  comm::broadcast_(bytes, root, group);
  return std::string(static_cast<const char*>(bytes.data_ptr()), bytes.numel());
}

/// The failure of the first rank that has one, on all ranks. Collective.
std::string first_failure(const std::string& own, comm::ProcessGroup& group) {
  auto rank = at::full({1}, own.empty() ? group.size() : group.rank(), at::kLong);
  comm::all_reduce_(rank, group, comm::Reduce::min);
  const auto culprit = rank.item<int64_t>();
  if (culprit == group.size()) return "";
  return text_of_rank(own, static_cast<int>(culprit), group) + " (rank " + std::to_string(culprit) + " of " +
         std::to_string(group.size()) + ")";
}

void read_into(const CheckpointReader& checkpoint, const Parameter& tensor) {
  const auto rows = checkpoint.split_rows(tensor.name);
  if (rows != (tensor.rows ? std::optional(tensor.rows->total) : std::nullopt)) {
    throw DataError("tensor '" + tensor.name + "' of the checkpoint is split otherwise than this job's, or has " +
                    "another number of rows");
  }
  const auto stored = tensor.rows ? checkpoint.read_rows(tensor.name, tensor.rows->first, tensor.rows->count)
                                  : checkpoint.read(tensor.name);
  if (stored.sizes() != tensor.tensor.sizes() || stored.scalar_type() != tensor.tensor.scalar_type()) {
    throw DataError("tensor '" + tensor.name + "' of the checkpoint has another shape or type than this job's");
  }
  const at::NoGradGuard no_grad;
  tensor.tensor.detach().copy_(stored);
}

}  // namespace

bool save_checkpoint(CheckpointStore& store, int64_t step, const TrainingState& state, comm::ProcessGroup& group) {
  auto failure = first_failure(failure_of([&] {
                                 if (group.rank() == 0) store.begin(step);
                               }),
                               group);
  if (failure.empty()) {
    failure = first_failure(failure_of([&] { write_own(store, step, state, group.rank()); }), group);
  }
  if (failure.empty()) {
    failure = first_failure(
        failure_of([&] {
          if (group.rank() == 0) {
            store.commit(
                {.step = step, .world = group.size(), .job = state.job, .trainer = state.trainer, .files = {}});
          }
        }),
        group);
  }
  if (failure.empty()) return true;
  if (group.rank() == 0) {
    store.abandon(step);
    log::warn("checkpoint of step " + std::to_string(step) + " could not be saved, training goes on: " + failure);
  }
  comm::barrier(group);
  return false;
}

std::optional<Restored> load_checkpoint(const CheckpointStore& store, const TrainingState& state,
                                        std::optional<int64_t> newest, comm::ProcessGroup& group) {
  auto step = at::full({1}, -1, at::kLong);
  if (group.rank() == 0) {
    std::vector<std::string> notes;
    const auto found = store.find_newest(state.job, notes, newest);
    for (const auto& note : notes) log::warn(note);
    if (found) step.fill_(found->step);
  }
  comm::broadcast_(step, 0, group);
  if (step.item<int64_t>() < 0) return std::nullopt;
  Restored restored{step.item<int64_t>(), store.manifest(step.item<int64_t>()).trainer};
  const auto failure = first_failure(failure_of([&] {
                                       const CheckpointReader checkpoint(store, restored.step);
                                       for (const auto& tensor : state.tensors) read_into(checkpoint, tensor);
                                     }),
                                     group);
  if (!failure.empty()) throw DataError("checkpoint " + store.path(restored.step).string() + ": " + failure);
  return restored;
}

std::string broadcast_text(std::string text, comm::ProcessGroup& group) {
  return group.size() == 1 ? text : text_of_rank(text, 0, group);
}

}  // namespace tandem::train
