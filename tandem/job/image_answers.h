#pragma once
#include <functional>
#include <span>
#include <vector>

#include "tandem/base/ranking.h"
#include "tandem/job/job.h"
#include "tandem/parallel/mesh.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// What a model answers about each image of a set, in the set's order, from batches that the ranks of `mesh` share.
class ImageAnswers {
 public:
  explicit ImageAnswers(parallel::Mesh& mesh) : mesh_(mesh) {}

  /// Adds this rank's part of a batch. Collective. Wire: 4 + 12 k bytes a sample, to rank 0.
  void add(const data::Batch& batch, const Ranking& best, std::span<const int64_t> sizes);

  // On rank 0; elsewhere they have no rows. Memory: as the wire.
  Tensor labels() const;  // [N] int64
  Ranking best() const;   // [N, k]

 private:
  parallel::Mesh& mesh_;
  std::vector<Tensor> labels_, classes_, scores_;
};

/// Goes through a set in its order, without labels: `use` gets this rank's part of each batch and the samples of each
/// rank that shares it. Does not communicate by itself; all ranks must go through all batches.
void for_each_batch(const Job& job, const data::Dataset& images, const parallel::Mesh& mesh,
                    const std::function<void(const data::Batch&, std::span<const int64_t> sizes)>& use);

/// The k best classes of each image. Collective.
ImageAnswers predict(const Job& job, train::Task& task, const data::Dataset& images, int64_t k, parallel::Mesh& mesh);

}  // namespace tandem::job
