#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/category.h"
#include "tandem/classifier/head_memory.h"
#include "tandem/job/job.h"
#include "tandem/memory/rehearsal.h"

namespace tandem::job {

/// Memory of a backbone in a step.
struct BackboneMemory {
  int64_t parameters = 0, buffers = 0;           // bytes
  int64_t trained = 0;                           // bytes of the parameters that are not frozen
  int64_t num_trained = 0;                       // tensors
  int64_t forward = 0, saved = 0, backward = 0;  // bytes of activations; see memory::Composition
  std::string block;                             // in which it has most
  bool is_exact = true;                          // false: this machine has no room for a block at this batch
};

/// The peak of a rank.
struct RankPeak {
  int64_t bytes = 0;
  std::string block;     // in which it is
  bool in_test = false;  // in no block, but in a test
};

/// Predicts the bytes of each rank in a training step; see head_memory() for what is exact. Not collective.
class MemoryPlan {
 public:
  /// With a backbone, the memory meter must be installed. Throws SettingsError as train does.
  MemoryPlan(const Job& job, const DataShape& shape);

  std::vector<int64_t> even_counts() const;

  /// True if every rank holds all classes: no counts are asked for.
  bool is_whole() const { return job_.head.form->is_whole; }

  /// False for a rank that only serves.
  bool takes_classes(int rank) const { return rank <= last_worker(); }

  /// The largest number of classes for which memory.limit leaves room on a rank. `beside`: bytes that the rank needs
  /// more than this object says. nullopt without a limit.
  std::optional<int64_t> most_classes(int rank, int64_t beside = 0) const;
  std::optional<int64_t> limit(int rank) const;

  /// False if this machine has no room for a block of the backbone at its batch.
  bool is_exact() const { return larger_.is_exact && smaller_.is_exact; }

  /// True if the job needs far less than this object says: recomputation is left out.
  bool is_rough() const { return job_.memory.recomputes(); }

  /// Bytes by category at the peak of the rank. A whole head has all classes, whatever `own_classes` is.
  CategoryBytes rank(int rank, int64_t own_classes) const;

  RankPeak peak(int rank, int64_t own_classes) const;
  std::vector<RankPeak> peaks(const std::vector<int64_t>& counts) const;

  /// True if classes could be split over the ranks.
  bool may_split() const { return !job_.parallel.is_async; }

  /// The bytes of each rank with one form of the head that the job may have: what it needs with or without an option.
  struct Form {
    std::string name;
    std::vector<CategoryBytes> ranks;
  };
  std::vector<Form> forms() const;

 private:
  CategoryBytes bytes_of(const Head& head, int rank, const classifier::HeadLoad& load) const;
  bool updates_backbone(int rank) const;
  int last_worker() const;  // of the ranks that get a part of a batch
  const BackboneMemory& backbone(int rank) const;
  int64_t micro_images(int rank) const;  // of a micro-batch of the rank
  int64_t micro_batch() const;           // the same of all ranks
  classifier::HeadLoad load_of(const Head& head, int rank, int64_t own_classes) const;

  Job job_;
  int ranks_;
  DataShape shape_;
  std::vector<int64_t> images_;      // of each rank
  BackboneMemory larger_, smaller_;  // of ranks with one image more, and of the others
  BackboneMemory idle_;              // of ranks without images
};

/// Compute threads of a rank.
int threads_of(const Parallel& parallel);

/// Bytes of this machine's memory that are free.
int64_t free_memory();

/// "5,226 5,226 5,225"; equal counts of more than 8 ranks are grouped: "1,250,000 x 64 1,249,999 x 64".
std::string counts_text(const std::vector<int64_t>& counts);

}  // namespace tandem::job
