#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "tandem/base/box.h"
#include "tandem/base/tensor.h"

namespace tandem {

/// Ten rounds of Philox 4x32: four random words that depend on `counter` and `key` alone.
/// Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// A stream of random numbers named by (seed, stream, index): the same on every rank, thread and machine.
/// Typical use: seed of the job, stream = purpose and step, index = the sample's global number.
class CounterRng {
 public:
  CounterRng(uint64_t seed, uint64_t stream, uint64_t index = 0);

  uint32_t next();
  double uniform();                         // [0, 1), 53 random bits
  double uniform(double low, double high);  // [low, high)
  double normal();                          // mean 0, deviation 1

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> words_{};
  uint64_t stream_;
  int used_ = 4;
};

/// A permutation of 0..n-1 that is computed, not stored: position -> item in O(1) memory and time.
/// Six Feistel rounds on the next even power of two, repeated until the value is below n.
class Permutation {
 public:
  Permutation(int64_t n, uint64_t seed, uint64_t epoch);

  int64_t operator()(int64_t position) const;
  int64_t size() const { return n_; }

 private:
  uint64_t mix(uint64_t value) const;

  int64_t n_;
  int half_bits_;
  uint64_t seed_, epoch_;
};

/// Fills a contiguous CPU tensor with normal(0, deviation). Element i, in C order, is drawn from (seed, stream, i).
void fill_normal_(const Tensor& tensor, double deviation, uint64_t seed, uint64_t stream);

/// The same for a tensor that holds the elements `part` of one of the sizes `whole`: they get the values that they
/// would have there. Throws c10::ValueError if the tensor has other sizes than the part, or the part does not lie in
/// it.
void fill_normal_(const Tensor& tensor, double deviation, uint64_t seed, uint64_t stream, const Box& part,
                  at::IntArrayRef whole);

/// Like fill_normal_(), with values uniform in [-bound, bound).
void fill_uniform_(const Tensor& tensor, double bound, uint64_t seed, uint64_t stream);
void fill_uniform_(const Tensor& tensor, double bound, uint64_t seed, uint64_t stream, const Box& part,
                   at::IntArrayRef whole);

/// A 64-bit number for a name, to use as a stream (FNV-1a).
uint64_t stream_of(std::string_view name);

}  // namespace tandem
