#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/category.h"
#include "tandem/classifier/head_memory.h"
#include "tandem/job/job.h"

namespace tandem::job {

/// Memory of a backbone. Its activations are measured on two small batches and extrapolated linearly.
struct BackboneMemory {
  struct Line {
    double constant = 0, an_image = 0;
    int64_t at(int64_t images) const;
  };
  int64_t parameters = 0, buffers = 0;  // bytes
  int64_t num_parameters = 0;           // tensors
  Line forward, kept, backward;         // peak in forward; kept for backward; peak in backward
};

/// Predicts the bytes of each rank in a training step; see head_memory() for what is exact. Not collective.
class MemoryPlan {
 public:
  /// With a backbone, the memory meter must be installed. Throws SettingsError as train does.
  MemoryPlan(const Job& job, const DataShape& shape);

  /// Number of classes of each rank: in proportion to the room that memory.limit leaves, or equal parts without a
  /// limit. Throws SettingsError if the classes do not fit.
  std::vector<int64_t> counts() const;

  /// The largest number of classes for which memory.limit leaves room on a rank; nullopt without a limit.
  std::optional<int64_t> most_classes(int rank) const;
  std::optional<int64_t> limit(int rank) const;

  /// Bytes by category at the peak of the rank.
  CategoryBytes rank(int rank, int64_t own_classes) const;

  /// The bytes of each rank with one form of the head: what the same job needs with or without an option.
  struct Form {
    std::string name;
    std::vector<CategoryBytes> ranks;
  };
  std::vector<Form> forms() const;

 private:
  CategoryBytes bytes_of(const Head& head, int rank, const classifier::HeadLoad& load) const;
  classifier::HeadLoad load_of(const Head& head, int rank, int64_t own_classes) const;

  Job job_;
  int ranks_;
  DataShape shape_;
  std::vector<int64_t> images_;  // of each rank
  BackboneMemory backbone_;
};

/// "5,226 5,226 5,225"; equal counts of more than 8 ranks are grouped: "1,250,000 x 64 1,249,999 x 64".
std::string counts_text(const std::vector<int64_t>& counts);

}  // namespace tandem::job
