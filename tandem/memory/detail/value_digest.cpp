#include "tandem/memory/detail/value_digest.h"

#include <ATen/ATen.h>

#include <cstring>

#include "tandem/memory/detail/operation_scope.h"

namespace tandem::memory::detail {
namespace {

constexpr int64_t kSamples = 16;
constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;

uint64_t mixed(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * kPrime;
  return digest ^ (digest >> 32);
}

/// Four chains, so that the multiplications of one do not wait for those of another.
uint64_t digest_of_bytes(const char* bytes, size_t size) {
  uint64_t chains[4] = {1, 2, 3, 4}, words[4];
  size_t at = 0;
  for (; at + sizeof(words) <= size; at += sizeof(words)) {
    std::memcpy(words, bytes + at, sizeof(words));
    for (int i = 0; i < 4; ++i) chains[i] = mixed(chains[i], words[i]);
  }
  uint64_t digest = size;
  for (const auto chain : chains) digest = mixed(digest, chain);
  for (; at < size; ++at) digest = mixed(digest, static_cast<unsigned char>(bytes[at]));
  return digest;
}

int64_t offset_of(const Tensor& values, int64_t index) {
  int64_t offset = 0;
  for (int64_t dim = values.dim(); dim-- > 0;) {
    const int64_t size = values.sizes()[dim];
    offset += index % size * values.strides()[dim];
    index /= size;
  }
  return offset;
}

uint64_t digest_of_sample(const Tensor& values) {
  const int64_t count = values.numel(), samples = std::min(count, kSamples);
  const auto width = static_cast<int64_t>(values.element_size());
  const char* data = static_cast<const char*>(values.const_data_ptr());
  uint64_t digest = static_cast<uint64_t>(count);
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t index = samples == 1 ? 0 : (count - 1) / (samples - 1) * i;
    digest = mixed(digest, digest_of_bytes(data + offset_of(values, index) * width, static_cast<size_t>(width)));
  }
  return digest;
}

}  // namespace

uint64_t digest_of(const Tensor& values, ValueCheck check) {
  if (check == ValueCheck::none || values.layout() != at::kStrided || values.numel() == 0) return 0;
  if (check == ValueCheck::sample) return values.device().is_cpu() ? digest_of_sample(values) : 0;
  const OperationScope unseen(nullptr);
  const at::NoGradGuard no_grad;
  auto dense = values;
  if (!dense.is_non_overlapping_and_dense()) dense = dense.contiguous();
  dense = dense.cpu();
  return digest_of_bytes(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
}

}  // namespace tandem::memory::detail
