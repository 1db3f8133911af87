#include "tandem/comm/detail/call_check.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "tandem/base/rng.h"

namespace tandem::comm::detail {
namespace {

constexpr size_t kShownDims = 8;

/// A call in a form that can be sent: no pointers, and every byte is set.
struct Card {
  std::array<char, 24> operation;
  std::array<char, 16> type, detail;
  std::array<char, 96> place;
  std::array<char, 64> split;
  std::array<int64_t, kShownDims> shape;
  int64_t sequence, dims;
  uint64_t split_hash;  // of the whole text
  int32_t peer, dim, requires_grad, size;
};
static_assert(sizeof(Card) == 320 && std::is_trivially_copyable_v<Card>);

template <size_t N>
void put(std::array<char, N>& target, std::string_view text) {
  std::memcpy(target.data(), text.data(), std::min(text.size(), N - 1));
}

Card card_of(const flight::CallInfo& call, int64_t sequence) {
  Card card;
  std::memset(&card, 0, sizeof card);
  put(card.operation, call.operation);
  put(card.type, call.type);
  put(card.detail, call.detail);
  put(card.place, call.place());
  put(card.split, call.split);
  card.split_hash = stream_of(call.split);
  card.dims = static_cast<int64_t>(call.shape.size());
  for (size_t i = 0; i < std::min(call.shape.size(), kShownDims); ++i) card.shape[i] = call.shape[i];
  card.sequence = sequence;
  card.peer = call.peer;
  card.dim = call.dim;
  card.requires_grad = call.requires_grad;
  return card;
}

/// A view of memory that is no tensor's: with the check a run needs the bytes that it needs without.
at::Tensor bytes_of(std::span<Card> cards) {
  return at::from_blob(cards.data(), {static_cast<int64_t>(cards.size_bytes())}, at::kByte);
}

std::string words(const Card& card, int rank) {
  const std::span shape(card.shape.data(), std::min(static_cast<size_t>(card.dims), kShownDims));
  std::string text = "rank " + std::to_string(rank) + " calls " + card.operation.data() + " of " +
                     flight::tensor_words(card.type.data(), shape);
  if (card.detail[0] != '\0') text += std::string(" (") + card.detail.data() + ")";
  if (card.peer >= 0) text += " with root " + std::to_string(card.peer);
  if (card.split[0] != '\0') text += std::string(" along ") + card.split.data();
  return text + " at " + card.place.data();
}

bool has_same_shape(const Card& a, const Card& b) {
  if (a.dims != b.dims) return false;
  for (int64_t i = 0; i < std::min<int64_t>(a.dims, kShownDims); ++i) {
    if (i != a.dim && a.shape[i] != b.shape[i]) return false;
  }
  return true;
}

/// Returns "" if the two calls agree.
std::string difference(const Card& a, const Card& b) {
  if (a.operation != b.operation) return "another operation";
  if (a.sequence != b.sequence) return "another call in the order";
  if (a.type != b.type) return "another type";
  if (a.peer != b.peer) return "another root";
  if (a.detail != b.detail) return "another reduction";
  if (a.split_hash != b.split_hash) return "another dim or other sizes of the parts";
  if (!has_same_shape(a, b)) return "another size";
  if (a.requires_grad != b.requires_grad) return "one needs a gradient, the other does not";
  return "";
}

}  // namespace

void check_call(c10d::Backend& backend, const flight::CallInfo& call, int64_t sequence) {
  auto own = card_of(call, sequence);
  std::vector<Card> cards(backend.getSize());
  auto mine = bytes_of({&own, 1}), all = bytes_of(cards);
  backend._allgather_base(all, mine)->wait();
  for (int rank = 1; rank < backend.getSize(); ++rank) {
    const auto fault = difference(cards[0], cards[rank]);
    TORCH_CHECK_WITH(DistBackendError, fault.empty(), words(cards[0], 0), ", ", words(cards[rank], rank), ": ", fault);
  }
}

}  // namespace tandem::comm::detail
