#include "tandem/base/rng.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "tandem/base/draws.h"

namespace tandem {
namespace {

thread_local bool draws_nothing = false;

constexpr int kFeistelRounds = 6;

uint64_t combine(uint32_t high, uint32_t low) { return (static_cast<uint64_t>(high) << 32) | low; }

double to_unit(uint32_t high, uint32_t low) { return static_cast<double>(combine(high, low) >> 11) * 0x1.0p-53; }

/// Box-Muller on four words.
std::pair<double, double> to_normals(const std::array<uint32_t, 4>& words) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_unit(words[0], words[1])));
  const double angle = 2.0 * std::numbers::pi * to_unit(words[2], words[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// The elements of a box as runs: those that lie next to each other in the whole tensor's C order.
class Runs {
 public:
  Runs(const Box& part, at::IntArrayRef whole) : part_(part), whole_(whole) {
    while (outer_ > 0 && part.count[outer_ - 1] == whole[outer_ - 1]) length_ *= whole[--outer_];
    if (outer_ > 0) length_ *= part.count[--outer_];
  }

  int64_t length() const { return length_; }

  /// The index in the whole tensor of a run's first element.
  int64_t first(int64_t run) const {
    int64_t index = 0, stride = 1;
    for (size_t dim = whole_.size(); dim-- > 0; stride *= whole_[dim]) {
      index += part_.first[dim] * stride;
      if (dim >= outer_) continue;
      index += run % part_.count[dim] * stride;
      run /= part_.count[dim];
    }
    return index;
  }

 private:
  const Box& part_;
  at::IntArrayRef whole_;
  size_t outer_ = whole_.size();  // dims outside of a run
  int64_t length_ = 1;
};

void check_part(const Tensor& tensor, const Box& part, at::IntArrayRef whole) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu() && tensor.is_contiguous(), "random fill: wanted a contiguous CPU tensor");
  TORCH_CHECK_VALUE(tensor.sizes() == at::IntArrayRef(part.count), "random fill: tensor is ", tensor.sizes(),
                    ", wanted the part's ", at::IntArrayRef(part.count));
  bool lies_in = part.count.size() == whole.size();
  for (size_t dim = 0; lies_in && dim < whole.size(); ++dim) {
    lies_in = part.first[dim] >= 0 && part.first[dim] + part.count[dim] <= whole[dim];
  }
  TORCH_CHECK_VALUE(lies_in, "random fill: part is ", to_string(part), ", wanted one in ", whole);
}

/// Calls fill(values, first, count, words_of) for elements that lie next to each other in the whole tensor from `first`
/// on, with the work divided among the threads.
template <class Fill>
void fill_shared(const Tensor& tensor, uint64_t seed, uint64_t stream, const Box& part, at::IntArrayRef whole,
                 const Fill& fill) {
  check_part(tensor, part, whole);
  if (WithoutDraws::is_set()) {
    tensor.zero_();
    return;
  }
  const auto words_of = [seed, stream](uint64_t index) {
    return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                   static_cast<uint32_t>(stream >> 32)},
                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  };
  constexpr int64_t kGrain = 1 << 14;
  const Runs runs(part, whole);
  AT_DISPATCH_FLOATING_TYPES(tensor.scalar_type(), "random fill", [&] {
    auto* values = tensor.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, tensor.numel(), kGrain, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t run = begin / runs.length(), inside = begin % runs.length();
        const int64_t count = std::min(end - begin, runs.length() - inside);
        fill(values + begin, runs.first(run) + inside, count, words_of);
        begin += count;
      }
    });
  });
}

}  // namespace

WithoutDraws::WithoutDraws() : before_(std::exchange(draws_nothing, true)) {}
WithoutDraws::~WithoutDraws() { draws_nothing = before_; }
bool WithoutDraws::is_set() { return draws_nothing; }

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiply0 * counter[0], product1 = kMultiply1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

CounterRng::CounterRng(uint64_t seed, uint64_t stream, uint64_t index)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{0, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream)},
      stream_(stream) {
  key_[1] ^= static_cast<uint32_t>(stream_ >> 32);
}

uint32_t CounterRng::next() {
  if (used_ == 4) {
    words_ = philox(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return words_[used_++];
}

double CounterRng::uniform() {
  const uint32_t high = next();
  return to_unit(high, next());
}

double CounterRng::uniform(double low, double high) { return low + (high - low) * uniform(); }

double CounterRng::normal() {
  std::array<uint32_t, 4> words{};
  for (auto& word : words) word = next();
  return to_normals(words).first;
}

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t epoch) : n_(n), half_bits_(1), seed_(seed), epoch_(epoch) {
  TORCH_CHECK_VALUE(n >= 0, "permutation: size is ", n, ", wanted 0 or more");
  while ((int64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
}

uint64_t Permutation::mix(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint32_t round = 0; round < kFeistelRounds; ++round) {
    const auto words = philox(
        {static_cast<uint32_t>(right), round, static_cast<uint32_t>(epoch_), static_cast<uint32_t>(epoch_ >> 32)},
        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    const uint64_t next = (left ^ words[0]) & mask;
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t position) const {
  TORCH_CHECK_INDEX(position >= 0 && position < n_, "permutation: position is ", position, ", wanted 0..", n_ - 1);
  auto value = static_cast<uint64_t>(position);
  do {
    value = mix(value);
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

void fill_normal_(const Tensor& tensor, double deviation, uint64_t seed, uint64_t stream, const Box& part,
                  at::IntArrayRef whole) {
  // Two elements share the words of one index: one takes the cosine, the other the sine.
  fill_shared(tensor, seed, stream, part, whole, [=](auto* values, int64_t first, int64_t count, const auto& words_of) {
    using Value = std::remove_pointer_t<decltype(values)>;
    for (int64_t i = 0; i < count;) {
      const auto index = static_cast<uint64_t>(first + i);
      const auto [even, odd] = to_normals(words_of(index / 2));
      if (index % 2 == 0) values[i++] = static_cast<Value>(deviation * even);
      if (i < count) values[i++] = static_cast<Value>(deviation * odd);
    }
  });
}

void fill_normal_(const Tensor& tensor, double deviation, uint64_t seed, uint64_t stream) {
  fill_normal_(tensor, deviation, seed, stream, whole_box(tensor.sizes()), tensor.sizes());
}

void fill_uniform_(const Tensor& tensor, double bound, uint64_t seed, uint64_t stream, const Box& part,
                   at::IntArrayRef whole) {
  fill_shared(tensor, seed, stream, part, whole, [=](auto* values, int64_t first, int64_t count, const auto& words_of) {
    using Value = std::remove_pointer_t<decltype(values)>;
    for (int64_t i = 0; i < count; ++i) {
      const auto words = words_of(static_cast<uint64_t>(first + i));
      values[i] = static_cast<Value>(bound * (2.0 * to_unit(words[0], words[1]) - 1.0));
    }
  });
}

void fill_uniform_(const Tensor& tensor, double bound, uint64_t seed, uint64_t stream) {
  fill_uniform_(tensor, bound, seed, stream, whole_box(tensor.sizes()), tensor.sizes());
}

uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3;
  return hash;
}

}  // namespace tandem
