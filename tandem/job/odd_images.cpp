#include "tandem/job/odd_images.h"

#include <ATen/ATen.h>

#include "tandem/base/format.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"

namespace tandem::job {
namespace {

/// One byte per sample of all sets: 1 if a rank found it odd. Undefined if no sample is odd. Collective.
Tensor marks_of(const std::vector<const data::Dataset*>& sets, comm::ProcessGroup& group) {
  int64_t size = 0, own = 0;
  for (const auto* set : sets) size += set->size(), own += set->odd_samples().count();
  if (comm::reduce_number(own, comm::Reduce::max, group) == 0) return {};
  auto marks = at::zeros({size}, at::kByte);
  auto* first = marks.mutable_data_ptr<uint8_t>();
  for (const auto* set : sets) {
    for (const int64_t index : set->odd_samples().indices()) first[index] = 1;
    first += set->size();
  }
  comm::all_reduce_(marks, group, comm::Reduce::max);
  return marks;
}

/// What is odd about a sample. Reads the sample if another process found it.
std::string oddity_of(const data::Dataset& set, int64_t index) {
  const auto known = set.odd_samples().indices();
  if (known.empty() || known.front() != index) {
    const auto [channels, height, width] = set.image_shape();
    std::vector<uint8_t> pixels(static_cast<size_t>(channels * height * width));
    set.read(index, pixels);
  }
  return set.odd_samples().example();
}

}  // namespace

std::optional<std::string> odd_images(const std::vector<const data::Dataset*>& all, comm::ProcessGroup& group) {
  std::vector<const data::Dataset*> sets;
  for (const auto* set : all) {
    if (set != nullptr) sets.push_back(set);
  }
  const auto marks = marks_of(sets, group);
  if (!marks.defined() || group.rank() != 0) return std::nullopt;
  const auto count = marks.sum().item<int64_t>();
  int64_t first = marks.argmax().item<int64_t>();
  size_t at = 0;
  for (; first >= sets[at]->size(); ++at) first -= sets[at]->size();
  return format_count(count) + " of " + format_count(marks.numel()) +
         (count == 1 ? " images breaks the rules of its format" : " images break the rules of their format") +
         ", with all pixels there: " + oddity_of(*sets[at], first);
}

}  // namespace tandem::job
