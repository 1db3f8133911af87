#include "tandem/job/feature_scores.h"

#include <ATen/ATen.h>

#include <numeric>
#include <set>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/comm/collectives.h"
#include "tandem/data/verification_pairs.h"
#include "tandem/evaluation/samples.h"
#include "tandem/job/image_answers.h"
#include "tandem/job/odd_images.h"
#include "tandem/job/parts.h"
#include "tandem/job/sections/naming.h"
#include "tandem/train/batches.h"

namespace tandem::job {
namespace {

constexpr int64_t kMaxRank = 10;

/// Features and labels of this rank's images, and the indices of these images in the set.
struct Embedded {
  Tensor features, labels;
  std::vector<int64_t> places;
};

/// `pass`: embed() or embed_with_mirrored(). Each batch is split over the ranks.
Embedded embed_all(const Job& job, train::Task& task, const data::Dataset& images, parallel::Mesh& mesh,
                   decltype(embed)& pass = embed) {
  const int rank = evaluation_loader_options(job, mesh.world().rank(), mesh.world().size()).rank;
  std::vector<Tensor> parts, labels;
  Embedded all;
  int64_t begin = 0;
  pass(job, task, images, mesh,
       [&](const data::Batch& batch, const Tensor& features, std::span<const int64_t> samples) {
         parts.push_back(features);
         labels.push_back(batch.labels);
         const auto first = std::accumulate(samples.begin(), samples.begin() + rank, begin);
         for (int64_t i = 0; i < samples[rank]; ++i) all.places.push_back(first + i);
         begin += batch.global_size;
       });
  all.features = at::cat(parts);
  all.labels = at::cat(labels);
  return all;
}

/// True for each of this rank's images that is the first of its class in the set.
Tensor firsts_of(const Embedded& own, int64_t images, comm::ProcessGroup& group) {
  auto labels = at::zeros({images}, at::kLong);
  labels.index_copy_(0, at::tensor(own.places, at::kLong), own.labels);
  comm::all_reduce_(labels, group);
  std::set<int64_t> seen;
  auto is_first = at::zeros({images}, at::kBool);
  const auto* label = labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < images; ++i) {
    if (seen.insert(label[i]).second) is_first.mutable_data_ptr<bool>()[i] = true;
  }
  return is_first.index_select(0, at::tensor(own.places, at::kLong));
}

evaluation::Samples samples_of(const Job& job, train::Task& task, const data::RetrievalSet& set, parallel::Mesh& mesh) {
  const auto all = embed_all(job, task, *set.images, mesh);
  const auto place = at::tensor(all.places, at::kLong);
  const auto own = [&](const std::vector<int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).index_select(0, place);
  };
  return {all.features, own(set.identity), own(set.camera)};
}

/// The features [2 P, D] of all images, on all ranks, in the set's order.
Tensor features_of_pairs(const Job& job, train::Task& task, const data::Dataset& images, parallel::Mesh& mesh) {
  const auto own = embed_all(job, task, images, mesh, embed_with_mirrored);
  auto whole = at::zeros({images.size(), own.features.size(1)}, own.features.options());
  whole.index_copy_(0, at::tensor(own.places, at::kLong), own.features);
  comm::all_reduce_(whole, mesh.batch());
  return whole;
}

data::VerificationPairs open_pairs(const Job& job, const std::string& file) {
  return naming_settings({"data"}, [&] {
    return data::verification_pairs({.file = file, .size = job.data.size, .form = job.data.preprocessing.form});
  });
}

Tensor tensor_of(const std::vector<bool>& same) {
  const auto tensor = at::empty({static_cast<int64_t>(same.size())}, at::kBool);
  std::ranges::copy(same, tensor.mutable_data_ptr<bool>());
  return tensor;
}

/// A fault that the protocol finds (a fold without both kinds of pair) is a fault of the file.
evaluation::LfwScores score_pairs(const std::string& file, const Tensor& features, const Tensor& same) {
  try {
    return evaluation::lfw(features.slice(0, 0, std::nullopt, 2), features.slice(0, 1, std::nullopt, 2), same);
  } catch (const c10::ValueError& error) {
    throw DataError("pairs '" + file + "': " + message_of(error));
  }
}

}  // namespace

void check_pairs(const Job& job) {
  for (const auto& file : job.evaluation.pairs) {
    const auto same = tensor_of(open_pairs(job, file).same);
    score_pairs(file, at::ones({2 * same.numel(), 1}), same);
  }
}

evaluation::RetrievalScores retrieval_scores(const Job& job, train::Task& task, const data::Retrieval& retrieval,
                                             parallel::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::activations);
  task.set_training(false);
  const auto query = samples_of(job, task, retrieval.query, mesh);
  const auto gallery = samples_of(job, task, retrieval.gallery, mesh);
  task.set_training(true);
  const auto scores = evaluation::retrieve(query, gallery, {.max_rank = kMaxRank}, mesh.batch());
  if (scores.num_valid == 0 && mesh.world().rank() == 0) log::warn("retrieval: no query has a match in the gallery");
  return scores;
}

SetScores set_scores(const Job& job, train::Task& task, const data::Dataset& images, parallel::Mesh& mesh) {
  SetScores scores;
  if (!job.evaluation.verifies && !job.evaluation.identifies) return scores;
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::activations);
  task.set_training(false);
  const auto own = embed_all(job, task, images, mesh);
  task.set_training(true);
  if (job.evaluation.verifies) {
    scores.verification = evaluation::compare_all_pairs({own.features, own.labels, {}}, {}, mesh.batch());
  }
  if (!job.evaluation.identifies) return scores;
  const auto is_first = firsts_of(own, images.size(), mesh.batch());
  const auto part = [&](const Tensor& chosen) {
    const auto rows = chosen.nonzero().flatten();
    return evaluation::Samples{own.features.index_select(0, rows), own.labels.index_select(0, rows), {}};
  };
  scores.identification = evaluation::identify(part(is_first.logical_not()), part(is_first), {}, mesh.batch());
  return scores;
}

std::vector<PairScores> pair_scores(const Job& job, train::Task& task, parallel::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::activations);
  std::vector<PairScores> all;
  task.set_training(false);
  for (const auto& file : job.evaluation.pairs) {
    const auto pairs = open_pairs(job, file);
    const auto features = features_of_pairs(job, task, *pairs.images, mesh);
    if (const auto line = odd_images({pairs.images.get()}, mesh.world())) log::warn("pairs '" + file + "': " + *line);
    all.push_back({file, static_cast<int64_t>(pairs.same.size()), score_pairs(file, features, tensor_of(pairs.same))});
  }
  task.set_training(true);
  return all;
}

}  // namespace tandem::job
