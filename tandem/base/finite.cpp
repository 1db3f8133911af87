#include "tandem/base/finite.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <atomic>
#include <cstring>
#include <limits>

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

/// The largest number of each tensor, by few kernels and without a copy: not finite if one of its numbers is not.
void note_on_device(const std::vector<Tensor>& tensors, Tensor flags) {
  std::vector<Tensor> values;
  std::vector<int64_t> places;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    const auto numbers = tensors[i].is_sparse() ? tensors[i]._values() : tensors[i];
    if (numbers.numel() == 0) continue;
    values.push_back(numbers);
    places.push_back(static_cast<int64_t>(i));
  }
  flags.fill_(1);
  if (values.empty()) return;
  auto largest = at::_foreach_norm(values, std::numeric_limits<double>::infinity());
  for (auto& number : largest) number = number.reshape({1});
  const auto finite = at::isfinite(at::cat(largest)).to(flags.scalar_type());
  if (values.size() == tensors.size()) {
    flags.copy_(finite);
  } else {
    flags.index_copy_(0, at::tensor(places, at::kLong).to(flags.device(), /*non_blocking=*/true), finite);
  }
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
  if (tensor.device().is_cpu()) return at::isfinite(tensor).all().item<bool>();
  const auto flag = at::empty({1}, tensor.options().dtype(at::kDouble));
  note_on_device({tensor}, flag);
  return flag.item<double>() != 0;
}

void note_finite(const std::vector<Tensor>& tensors, const Tensor& flags) {
  const at::NoGradGuard no_grad;
  if (!flags.is_cpu()) return note_on_device(tensors, flags);
  auto* flag = flags.mutable_data_ptr<double>();
  for (size_t i = 0; i < tensors.size(); ++i) flag[i] = !tensors[i].defined() || all_finite(tensors[i]) ? 1 : 0;
}

}  // namespace tandem
