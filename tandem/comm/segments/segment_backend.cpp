#include "tandem/comm/segments/segment_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "tandem/comm/local/local_reduce.h"
#include "tandem/comm/split.h"

namespace tandem::comm {
namespace {

/// Up to here each rank sums all itself, which saves a meeting.
constexpr int64_t kSmallBytes = 16 << 10;

int64_t turns_for(int64_t amount, int64_t a_turn) { return (amount + a_turn - 1) / a_turn; }

std::vector<int64_t> bytes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> bytes;
  for (const auto& tensor : tensors) bytes.push_back(tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0);
  return bytes;
}

/// A run of a tensor's bytes.
struct Piece {
  int64_t begin = 0, bytes = 0;
};

/// What travels in one turn, of `a_turn` bytes each.
Piece piece_of(int64_t bytes, int64_t turn, int64_t a_turn) {
  const int64_t begin = std::min(bytes, turn * a_turn);
  return {begin, std::min(a_turn, bytes - begin)};
}

void copy_from(const at::Tensor& tensor, const Piece& piece, std::byte* target) {
  if (piece.bytes == 0) return;
  std::memcpy(target, static_cast<const std::byte*>(tensor.const_data_ptr()) + piece.begin, piece.bytes);
}

void copy_into(const at::Tensor& tensor, const Piece& piece, const std::byte* source) {
  if (piece.bytes == 0) return;
  std::memcpy(static_cast<std::byte*>(tensor.mutable_data_ptr()) + piece.begin, source, piece.bytes);
}

}  // namespace

SegmentBackend::SegmentBackend(int rank, std::unique_ptr<Stage> stage, c10::intrusive_ptr<c10d::Backend> messages)
    : OwnBackend(rank, stage->size()),
      stage_(std::move(stage)),
      mailbox_(std::make_shared<SegmentMailbox>(stage_)),
      messages_(std::move(messages)) {}

SegmentBackend::~SegmentBackend() {
  // What is on its way is waited for, but not by a rank that fails: the others may not come.
  if (std::uncaught_exceptions() > 0) stage_->leave("rank " + std::to_string(getRank()) + " has left");
  drain();
}

std::function<void()> SegmentBackend::post(int to, int tag, std::initializer_list<Bytes> pieces) {
  try {
    return [posted = mailbox_->post(to, tag, pieces)] {
      try {
        posted->wait();
      } catch (const LocalFailure& failure) {
        TORCH_CHECK_WITH(DistBackendError, false, "send: ", failure.text);
      }
    };
  } catch (const LocalFailure& failure) {
    fail("send", failure);
  }
}

void SegmentBackend::take(int from, int tag, const std::function<void(Bytes)>& read) {
  try {
    mailbox_->take(from, tag, read);
  } catch (const LocalFailure& failure) {
    fail("recv", failure);
  }
}

/// Runs a call. If it fails on this rank alone, the others do not wait for it.
void SegmentBackend::run_in_turns(const Call& call, CallTerms terms, const std::function<int64_t()>& turns,
                                  const std::vector<Step>& steps) {
  terms.operation = name_of(call);
  terms.signature = call.signature;
  try {
    stage_->announce(terms);
    take_turns(call, turns, steps);
  } catch (const LocalFailure&) {
    throw;
  } catch (...) {
    stage_->leave("rank " + std::to_string(getRank()) + " has failed in " + terms.operation);
    throw;
  }
}

/// In phase p, step i works on turn p - i. The first step fills this rank's slot; all ranks meet
/// between two phases. `turns` is asked after the first meeting.
///
///   phase      0       1          2          3
///   turn 0   fill 0  combine 0  take 0
///   turn 1           fill 1     combine 1  take 1
///                  ^          ^          ^ meet
void SegmentBackend::take_turns(const Call& call, const std::function<int64_t()>& turns,
                                const std::vector<Step>& steps) {
  const auto depth = static_cast<int64_t>(steps.size());
  steps[0](0);
  stage_->meet();
  stage_->check_agreement([&] { return words_of(call); });
  const int64_t count = std::max<int64_t>(1, turns()), last = count + depth - 2;
  for (int64_t phase = 1; phase <= last; ++phase) {
    for (int64_t step = depth - 1; step >= 0; --step) {
      const int64_t turn = phase - step;
      if (turn >= 0 && turn < count) steps[step](turn);
    }
    if (phase < last) stage_->meet();
  }
  stage_->end(count);
}

/// A rank's slot has one share for each receiver.
int64_t SegmentBackend::share_bytes() const {
  constexpr int64_t kLine = 64;
  return std::max(kLine, Stage::kSlotBytes / getSize() / kLine * kLine);
}

void SegmentBackend::meet(const Call& call) {
  run_in_turns(call, {}, [] { return 1; }, {[](int64_t) {}});
}

void SegmentBackend::move(const Call& call, const Blocks& blocks) {
  const int size = getSize(), rank = getRank();
  const auto given = bytes_of(blocks.give), awaited = bytes_of(blocks.take);
  const int64_t share = blocks.is_same ? 0 : share_bytes(), a_turn = blocks.is_same ? Stage::kSlotBytes : share;
  const auto fill = [&](int64_t turn) {
    for (int step = 1; step < size; ++step) {
      const int to = (rank + step) % size;
      copy_from(blocks.give[to], piece_of(given[to], turn, a_turn), stage_->slot(rank, turn) + to * share);
      if (blocks.is_same && given[to] > 0) return;
    }
  };
  const auto take = [&](int64_t turn) {
    for (int step = 1; step < size; ++step) {
      const int from = (rank + step) % size;
      copy_into(blocks.take[from], piece_of(awaited[from], turn, a_turn), stage_->slot(from, turn) + rank * share);
    }
  };
  const bool has_own = given[rank] > 0 && given[rank] == awaited[rank];
  if (has_own && blocks.give[rank].const_data_ptr() != blocks.take[rank].const_data_ptr()) {
    copy_into(blocks.take[rank], {0, awaited[rank]}, static_cast<const std::byte*>(blocks.give[rank].const_data_ptr()));
  }
  run_in_turns(call, {"", 0, given.data(), awaited.data()}, [&] { return turns_for(stage_->most_given(), a_turn); },
               {fill, take});
}

std::vector<const void*> SegmentBackend::slots(int64_t turn, int64_t offset) const {
  std::vector<const void*> all;
  for (int rank = 0; rank < getSize(); ++rank) all.push_back(stage_->slot(rank, turn) + offset);
  return all;
}

void SegmentBackend::reduce_in_place(const Call& call, const at::Tensor& tensor, Reduction op,
                                     std::optional<int> root) {
  if (static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes) return reduce_small(call, tensor, op, root);
  const int size = getSize(), rank = getRank();
  const auto bytes = static_cast<int64_t>(tensor.nbytes()), element = static_cast<int64_t>(tensor.element_size());
  const bool has_result = !root || *root == rank;
  const auto piece = [&](int64_t turn) { return piece_of(bytes, turn, Stage::kSlotBytes); };
  const auto fill = [&](int64_t turn) { copy_from(tensor, piece(turn), stage_->slot(rank, turn)); };
  const auto combine = [&](int64_t turn) {  // the rank-th part of the turn, for all
    const auto [begin, end] = split_range(piece(turn).bytes / element, size, rank);
    std::vector<void*> outputs = {stage_->slot(rank, turn)};
    if (has_result) outputs.push_back(static_cast<std::byte*>(tensor.mutable_data_ptr()) + piece(turn).begin);
    reduce_slice(tensor.scalar_type(), op, slots(turn), outputs, begin, end);
  };
  const auto take = [&](int64_t turn) {
    if (!has_result) return;
    for (int step = 1; step < size; ++step) {
      const int from = (rank + step) % size;
      const auto [begin, end] = split_range(piece(turn).bytes / element, size, from);
      copy_into(tensor, {piece(turn).begin + begin * element, (end - begin) * element},
                stage_->slot(from, turn) + begin * element);
    }
  };
  run_in_turns(call, {}, [&] { return turns_for(bytes, Stage::kSlotBytes); }, {fill, combine, take});
}

/// Each rank reduces all itself: one meeting instead of two.
void SegmentBackend::reduce_small(const Call& call, const at::Tensor& tensor, Reduction op, std::optional<int> root) {
  const Piece whole = {0, static_cast<int64_t>(tensor.nbytes())};
  const auto fill = [&](int64_t turn) { copy_from(tensor, whole, stage_->slot(getRank(), turn)); };
  const auto combine = [&](int64_t turn) {
    if (root && *root != getRank()) return;
    void* target = tensor.mutable_data_ptr();
    reduce_slice(tensor.scalar_type(), op, slots(turn), {&target, 1}, 0, tensor.numel());
  };
  run_in_turns(call, {}, [] { return 1; }, {fill, combine});
}

void SegmentBackend::reduce_parts(const Call& call, const Tensors& parts, const at::Tensor& output, Reduction op) {
  const int size = getSize(), rank = getRank();
  const auto given = bytes_of(parts);
  const auto own = static_cast<int64_t>(output.nbytes()), element = static_cast<int64_t>(output.element_size());
  const std::vector<int64_t> awaited(size, own);
  const int64_t share = share_bytes();
  const auto fill = [&](int64_t turn) {
    for (int step = 1; step < size; ++step) {
      const int to = (rank + step) % size;
      copy_from(parts[to], piece_of(given[to], turn, share), stage_->slot(rank, turn) + to * share);
    }
  };
  const auto combine = [&](int64_t turn) {
    const auto piece = piece_of(own, turn, share);
    if (piece.bytes == 0) return;
    auto inputs = slots(turn, rank * share);
    inputs[rank] = static_cast<const std::byte*>(parts[rank].const_data_ptr()) + piece.begin;  // has not travelled
    void* target = static_cast<std::byte*>(output.mutable_data_ptr()) + piece.begin;
    reduce_slice(output.scalar_type(), op, inputs, {&target, 1}, 0, piece.bytes / element);
  };
  run_in_turns(call, {"", 0, given.data(), awaited.data()}, [&] { return turns_for(stage_->most_given(), share); },
               {fill, combine});
}

}  // namespace tandem::comm
