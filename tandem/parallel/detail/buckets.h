#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tandem/parallel/detail/gradient_sums.h"

namespace c10d {
class Reducer;
}

namespace tandem::parallel::detail {

struct BucketOptions {
  int64_t bucket_bytes = 0, first_bucket_bytes = 0;
  bool are_gradients = true;  // .grad is a view into its bucket; else the buckets are memory of their own
};

/// The memory in which the gradients of a rank travel, of category gradients: c10d::Reducer's buckets, and
/// GradientSums.
class Buckets {
 public:
  Buckets(GradientSums::Parts parts, comm::ProcessGroup& channel, const BucketOptions& options);
  ~Buckets();

  GradientSums& sums() { return sums_; }
  const GradientSums& sums() const { return sums_; }

  /// Lays the buckets out anew, in the order in which gradients have come, after the first backward that was summed.
  /// Must be called before each step. Collective.
  void rebuild();

  /// Makes each .grad a view into its bucket, filled with zeros: the gradients of a step's micro-batches add up there.
  void lay_gradients();

  /// The next backward, which starts from `loss`, sums each bucket as soon as it is full.
  void prepare(const Tensor& loss);

  /// Called within a backward: this parameter gets no gradient in it, and its place is filled from .grad, or with
  /// zeros.
  void skip(size_t parameter);

  /// Starts the buckets that are not full, marked as spoilt: see GradientSums.
  void start_the_rest();

  /// Without a backward: sums what is in .grad, zeros where it is undefined, of the buckets that have not been started.
  void start_from_gradients();

  /// The same of those whose parameters are all in `complete`; a bucket with a parameter in `missing` is spoilt.
  void start_from_gradients(const std::vector<Tensor>& complete, const std::vector<Tensor>& missing);

  /// Then, when the sums have been waited for: leaves them in .grad.
  void put_into_gradients();

 private:
  const BucketOptions options_;
  GradientSums sums_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace tandem::parallel::detail
