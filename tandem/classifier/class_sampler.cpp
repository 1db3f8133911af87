#include "tandem/classifier/class_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/base/rng.h"

namespace tandem::classifier {
namespace {

constexpr int64_t kWords = 4;  // of a Philox block: a class each

/// Those that are here, each once, rising.
std::vector<int64_t> local_targets(const Tensor& targets, int64_t first, int64_t count) {
  const auto ids = targets.cpu().contiguous();
  std::vector<int64_t> found;
  for (const int64_t id : std::span(ids.const_data_ptr<int64_t>(), ids.numel())) {
    if (id >= first && id < first + count) found.push_back(id - first);
  }
  std::ranges::sort(found);
  const auto twins = std::ranges::unique(found);
  found.erase(twins.begin(), twins.end());
  return found;
}

/// Appends those of the rank's classes that are drawn and stand not among `targets`.
void draw_others(const Sampling& sampling, uint64_t seed, int64_t step, int64_t first, int64_t count,
                 const std::vector<int64_t>& targets, std::vector<int64_t>& ids) {
  const auto bound = static_cast<uint64_t>(std::llround(sampling.rate * 0x1p32));
  const uint64_t stream = stream_of("head.sample") + static_cast<uint64_t>(step);
  auto target = targets.begin();
  for (int64_t block = first / kWords; block * kWords < first + count; ++block) {
    const auto words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                              {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    for (int64_t i = 0; i < kWords; ++i) {
      const int64_t id = block * kWords + i - first;
      if (id < 0 || id >= count) continue;
      if (target != targets.end() && *target == id) {
        ++target;
      } else if (words[i] < bound) {
        ids.push_back(id);
      }
    }
  }
}

/// Appends the first `wanted` of the rank's classes that stand not among `targets`.
void take_others(int64_t wanted, int64_t count, const std::vector<int64_t>& targets, std::vector<int64_t>& ids) {
  auto target = targets.begin();
  for (int64_t id = 0; id < count && wanted > 0; ++id) {
    if (target != targets.end() && *target == id) {
      ++target;
    } else {
      ids.push_back(id);
      --wanted;
    }
  }
}

}  // namespace

DrawRange draws_of(double rate, int64_t count) {
  constexpr double kLogOfSteps = 24;  // 10^10
  const double mean = rate * static_cast<double>(count), variance = mean * (1 - rate);
  const double away = kLogOfSteps / 3 + std::sqrt(kLogOfSteps * kLogOfSteps / 9 + 2 * kLogOfSteps * variance);
  if (rate >= 1) return {count, count};
  return {std::max<int64_t>(0, std::llround(std::floor(mean - away))),
          std::min<int64_t>(count, std::llround(std::ceil(mean + away)))};
}

ClassSample sample_classes(const Sampling& sampling, uint64_t seed, int64_t step, int64_t first, int64_t count,
                           const Tensor& targets) {
  TORCH_CHECK_VALUE(sampling.rate > 0 && sampling.rate <= 1, "class sampling: rate is ", sampling.rate,
                    ", wanted above 0 and at most 1");
  const auto positives = local_targets(targets, first, count);
  auto ids = positives;
  ids.reserve(positives.size() + static_cast<size_t>(1.1 * sampling.rate * static_cast<double>(count)));
  if (sampling.scored) {
    take_others(*sampling.scored - static_cast<int64_t>(positives.size()), count, positives, ids);
  } else {
    draw_others(sampling, seed, step, first, count, positives, ids);
  }
  return {at::tensor(ids, at::kLong), static_cast<int64_t>(positives.size()),
          sampling.is_corrected ? -std::log(sampling.rate) : 0.0};
}

}  // namespace tandem::classifier
