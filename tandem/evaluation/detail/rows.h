#pragma once
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/evaluation/samples.h"

namespace tandem::evaluation::detail {

/// Checked samples, with the values that comparisons need. Memory: 40 bytes a row besides the features.
struct Rows {
  struct Label {
    int64_t identity, camera, key;  // key: the row's place in an order of the whole set
  };
  struct Scale {
    double factor, length;  // applied to the row's products; |row| * factor
  };
  Tensor features;  // [n, D], contiguous
  Tensor labels;    // [n, 3] int64, a Label per row
  Tensor scales;    // [n, 2] float64, a Scale per row

  int64_t size() const { return features.size(0); }
  int64_t dim() const { return features.size(1); }
  const Label* label() const { return reinterpret_cast<const Label*>(labels.const_data_ptr<int64_t>()); }
  const Scale* scale() const { return reinterpret_cast<const Scale*>(scales.const_data_ptr<double>()); }
  Rows narrow(int64_t begin, int64_t count) const;
};

/// Number of rows of each set on each rank, [sets][ranks]. Throws c10::ValueError on all ranks if sets or ranks differ
/// in type, dim or cameras. Collective: one all_gather.
std::vector<std::vector<int64_t>> exchange_sizes(const std::vector<Samples>& sets, comm::ProcessGroup& group);

/// The keys are first_key, first_key + key_step, ... Throws c10::ValueError if a row is not finite.
Rows make_rows(const std::string& what, const Samples& samples, bool normalise, int64_t first_key, int64_t key_step);

/// The similarity of row i of a and row j of b, by its definition; symmetric.
double similarity(const Rows& a, int64_t i, const Rows& b, int64_t j);

}  // namespace tandem::evaluation::detail
