#pragma once
#include <functional>
#include <limits>
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
  /// Keeps at most `most` classes of each image.
  explicit ImageAnswers(parallel::Mesh& mesh, int64_t most = kAll) : mesh_(mesh), most_(most) {}

  /// Adds this rank's part of a batch. Collective. Wire: 8 + 12 k bytes a sample in float32, to rank 0.
  void add(const data::Batch& batch, const Ranking& best, std::span<const int64_t> sizes);

  int64_t count() const { return static_cast<int64_t>(labels_.size()); }  // N: of images, on rank 0

  // On rank 0; elsewhere they have no rows. Memory: as the wire, twice.
  Tensor labels() const;  // [N] int64
  Ranking best() const;   // [N, k]

 private:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  parallel::Mesh& mesh_;
  int64_t most_, kept_ = 0;
  // Not tensors: what a run's report shows is no part of the memory of its ranks.
  std::vector<int64_t> labels_, classes_;
  std::vector<float> scores_;
};

/// The features of a set's images, in its order: `use` gets this rank's part of each batch, whose images may be gone,
/// and the samples of each rank that shares it. Collective over the ranks that share out the model; all ranks must go
/// through all batches.
using UseFeatures =
    std::function<void(const data::Batch& batch, const Tensor& features, std::span<const int64_t> sizes)>;
void embed(const Job& job, train::Task& task, const data::Dataset& images, const parallel::Mesh& mesh,
           const UseFeatures& use);

/// The same of each image and of its mirror image, added up.
void embed_with_mirrored(const Job& job, train::Task& task, const data::Dataset& images, const parallel::Mesh& mesh,
                         const UseFeatures& use);

/// The k best classes of each image. Collective.
ImageAnswers predict(const Job& job, train::Task& task, const data::Dataset& images, int64_t k, parallel::Mesh& mesh);

}  // namespace tandem::job
