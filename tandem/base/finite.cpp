#include "tandem/base/finite.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <atomic>
#include <cstring>

#define TANDEM_LOOPS "tandem/base/finite_loops.inc"
#include "tandem/base/for_each_cpu.inc"

namespace tandem {
namespace {

constexpr int64_t kBytesATask = 256 << 10;

template <class Word>
bool any_bad_number(const Word* words, int64_t count, Word exponent) {
  TANDEM_FOR_CPU(any_bad(words, count, exponent))
}

template <class Word>
bool words_are_finite(const Tensor& tensor, Word exponent) {
  const auto* words = static_cast<const Word*>(tensor.const_data_ptr());
  std::atomic<bool> finite{true};
  at::parallel_for(0, tensor.numel(), kBytesATask / static_cast<int64_t>(sizeof(Word)),
                   [&](int64_t begin, int64_t end) {
                     if (finite && any_bad_number(words + begin, end - begin, exponent)) finite = false;
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

void note_finite(const std::vector<Tensor>& tensors, const Tensor& flags) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto flag = flags[static_cast<int64_t>(i)];
    if (!tensors[i].defined()) {
      flag.fill_(1);
    } else if (flag.is_cpu()) {
      flag.data_ptr<double>()[0] = all_finite(tensors[i]) ? 1 : 0;
    } else {
      flag.copy_(at::isfinite(tensors[i].is_sparse() ? tensors[i]._values() : tensors[i]).all());
    }
  }
}

}  // namespace tandem
