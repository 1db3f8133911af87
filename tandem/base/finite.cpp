#include "tandem/base/finite.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <cstring>

#include "tandem/base/vectors.h"

namespace tandem {
namespace {

constexpr int64_t kBytesATask = 256 << 10;

// A number is finite unless all bits of its exponent are set. The compiler turns these integer comparisons into
// vectors; it would have to keep a sum of floats in order.
template <class Word>
TANDEM_INLINE bool any_has_all_of(const Word* words, int64_t count, Word exponent) {
  Word found = 0;
  for (int64_t i = 0; i < count; ++i) found |= static_cast<Word>((words[i] & exponent) == exponent);
  return found != 0;
}

TANDEM_FOR_EACH_CPU bool any_bad(const uint32_t* words, int64_t count, uint32_t exponent) {
  return any_has_all_of(words, count, exponent);
}
TANDEM_FOR_EACH_CPU bool any_bad(const uint64_t* words, int64_t count, uint64_t exponent) {
  return any_has_all_of(words, count, exponent);
}
TANDEM_FOR_EACH_CPU bool any_bad(const uint16_t* words, int64_t count, uint16_t exponent) {
  return any_has_all_of(words, count, exponent);
}

template <class Word>
bool words_are_finite(const Tensor& tensor, Word exponent) {
  const auto* words = static_cast<const Word*>(tensor.const_data_ptr());
  std::atomic<bool> finite{true};
  at::parallel_for(0, tensor.numel(), kBytesATask / static_cast<int64_t>(sizeof(Word)),
                   [&](int64_t begin, int64_t end) {
                     if (finite && any_bad(words + begin, end - begin, exponent)) finite = false;
                   });
  return finite;
}

}  // namespace

bool all_finite(const Tensor& tensor) {
  if (tensor.is_sparse()) return all_finite(tensor._values());
  if (!at::isFloatingType(tensor.scalar_type()) && !at::isComplexType(tensor.scalar_type())) return true;
  if (tensor.device().is_cpu() && tensor.is_non_overlapping_and_dense()) {
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return words_are_finite<uint32_t>(tensor, 0x7F800000u);
      case at::kDouble:
        return words_are_finite<uint64_t>(tensor, 0x7FF0000000000000u);
      case at::kBFloat16:
        return words_are_finite<uint16_t>(tensor, 0x7F80u);
      case at::kHalf:
        return words_are_finite<uint16_t>(tensor, 0x7C00u);
      default:
        break;
    }
  }
  const at::NoGradGuard no_grad;
  return at::isfinite(tensor).all().item<bool>();
}

}  // namespace tandem
