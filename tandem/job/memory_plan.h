#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/classifier/head_memory.h"
#include "tandem/job/job.h"
#include "tandem/memory/category.h"

namespace tandem::job {

/// Activations of a backbone, measured on two small batches and continued in a straight line.
struct BackboneMemory {
  struct Line {
    double constant = 0, an_image = 0;
    int64_t at(int64_t images) const;
  };
  int64_t parameters = 0, buffers = 0;  // bytes
  int64_t num_parameters = 0;           // tensors
  Line forward, kept, backward;         // peak; what stays for backward; peak
};

/// Tells the bytes of each rank in a training step before it is run; see head_memory() for what is exact. Not
/// collective.
class MemoryPlan {
 public:
  /// Needs the memory meter for a backbone. Throws SettingsError as train does.
  MemoryPlan(const Job& job, const DataShape& shape);

  /// Classes of each rank: in proportion to what memory.limit leaves room for, else all the same. Throws SettingsError
  /// when they do not fit.
  std::vector<int64_t> counts() const;

  /// The most classes that memory.limit leaves room for on a rank; nothing without a limit.
  std::optional<int64_t> most_classes(int rank) const;
  std::optional<int64_t> limit(int rank) const;

  /// By category, at the rank's peak.
  memory::CategoryBytes rank(int rank, int64_t own_classes) const;

  /// The forms of a head, each rank's bytes: what the same job needs without this, and with that.
  struct Form {
    std::string name;
    std::vector<memory::CategoryBytes> ranks;
  };
  std::vector<Form> forms() const;

 private:
  memory::CategoryBytes bytes_of(const Head& head, int rank, const classifier::HeadLoad& load) const;
  classifier::HeadLoad load_of(const Head& head, int rank, int64_t own_classes) const;

  Job job_;
  int ranks_;
  DataShape shape_;
  std::vector<int64_t> images_;  // of each rank
  BackboneMemory backbone_;
};

/// "5,226 5,226 5,225", of many ranks "1,250,000 x 64 and 1,249,999 x 64".
std::string counts_text(const std::vector<int64_t>& counts);

}  // namespace tandem::job
