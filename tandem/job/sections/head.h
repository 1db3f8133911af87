#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "tandem/classifier/class_sampler.h"
#include "tandem/classifier/class_sharded_head.h"

namespace tandem::job {

struct HeadKind;

/// How the classifier is divided over the ranks: a row of head_forms(). To add a form, add a row.
struct HeadForm {
  std::string_view name;  // as the setting head.parallel spells it
  std::string_view doc;   // for the settings' table
  std::string_view plan;  // of a run, before the classes of each rank if they are split
  std::unique_ptr<classifier::Head> (*make)(const classifier::HeadOptions& options, comm::ProcessGroup& group);
  bool is_whole = false;        // each rank holds all classes and scores its own rows; otherwise they are split
  bool gathers_scores = false;  // on rank 0: there are no blocks of classes
  bool updates_rows = false;    // the gradient of a row is final in backward: rows may be sampled, or updated there
  bool sums_in_order = false;   // it can sum over shards of the batch and of the classes (HeadOptions::shards)
  bool differentiates_twice = false;  // HeadOptions::differentiates_twice
  bool has_passes = false;            // it can score before others have (classifier/pipeline_head.h)
};

/// All forms; the first is the default.
std::span<const HeadForm> head_forms();

/// There must be one of this name.
const HeadForm& head_form(std::string_view name);

/// The classifier.
struct Head {
  const HeadKind* kind = nullptr;
  const HeadForm* form = nullptr;
  parallel::Axes over = parallel::Axes::all();  // of the mesh: split classes are split over the ranks along these
  int64_t classes = 0;                          // 0: as many as the data has
  classifier::HeadOptions options;              // except classes and counts, set by the data and memory.limit
  std::optional<classifier::Annealing> annealing;
  bool steps_in_backward = false;  // both: see train::RowParameter
  bool moves_all_rows = false;
};

}  // namespace tandem::job
