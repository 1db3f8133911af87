#pragma once
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/evaluation/samples.h"

namespace tandem::evaluation::detail {

/// Checked samples, with what comparisons need of each. 40 bytes a row beside the features.
struct Rows {
  struct Label {
    int64_t identity, camera, key;  // key: its place in an order of the whole set
  };
  struct Scale {
    double factor, length;  // of its products; |row| * factor
  };
  Tensor features;  // [n, D], in one piece
  Tensor labels;    // [n, 3] int64, a Label each
  Tensor scales;    // [n, 2] float64, a Scale each

  int64_t size() const { return features.size(0); }
  int64_t dim() const { return features.size(1); }
  const Label* label() const { return reinterpret_cast<const Label*>(labels.const_data_ptr<int64_t>()); }
  const Scale* scale() const { return reinterpret_cast<const Scale*>(scales.const_data_ptr<double>()); }
  Rows narrow(int64_t begin, int64_t count) const;
};

/// How many rows each rank holds of each set, [sets][ranks]. Throws c10::ValueError on all ranks when they differ in
/// type, dim or cameras. Collective: one all_gather.
std::vector<std::vector<int64_t>> exchange_sizes(const std::vector<Samples>& sets, comm::ProcessGroup& group);

/// keys: first, first + step, ... Throws c10::ValueError when a row is not finite.
Rows make_rows(const std::string& what, const Samples& samples, bool normalise, int64_t first_key, int64_t key_step);

/// The similarity of row i of a and row j of b, by its definition; symmetric.
double similarity(const Rows& a, int64_t i, const Rows& b, int64_t j);

}  // namespace tandem::evaluation::detail
