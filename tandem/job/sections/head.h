#pragma once
#include <optional>
#include <string_view>

#include "tandem/classifier/class_sampler.h"
#include "tandem/classifier/class_sharded_head.h"

namespace tandem::job {

struct HeadKind;

/// Classes split over the ranks, or all scores gathered on rank 0.
enum class HeadForm { sharded, naive };
std::string_view name_of(HeadForm form);

/// The classifier.
struct Head {
  const HeadKind* kind = nullptr;
  int64_t classes = 0;              // 0: as many as the data has
  classifier::HeadOptions options;  // except classes and counts, set by the data and memory.limit
  std::optional<classifier::Annealing> annealing;
  bool steps_in_backward = false;  // both: see train::RowParameter
  bool moves_all_rows = false;

  HeadForm form() const { return options.naive ? HeadForm::naive : HeadForm::sharded; }
};

}  // namespace tandem::job
