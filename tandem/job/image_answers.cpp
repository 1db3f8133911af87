#include "tandem/job/image_answers.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/job/parts.h"
#include "tandem/train/batches.h"

namespace tandem::job {
namespace {

Tensor joined(const std::vector<Tensor>& parts) { return parts.empty() ? Tensor() : at::cat(parts); }

}  // namespace

void ImageAnswers::add(const data::Batch& batch, const Ranking& best, std::span<const int64_t> sizes) {
  const CategoryScope scope(Category::other);
  auto& group = mesh_.batch();
  labels_.push_back(comm::gather(batch.labels, 0, group, 0, sizes));
  classes_.push_back(comm::gather(best.classes, 0, group, 0, sizes));
  scores_.push_back(comm::gather(best.scores, 0, group, 0, sizes));
}

Tensor ImageAnswers::labels() const { return joined(labels_); }
Ranking ImageAnswers::best() const { return {joined(classes_), joined(scores_)}; }

void for_each_batch(const Job& job, const data::Dataset& images, const parallel::Mesh& mesh,
                    const std::function<void(const data::Batch&, std::span<const int64_t>)>& use) {
  const auto loader = evaluation_loader(job, images, mesh.world());
  train::start_epoch(*loader, 0);
  data::Batch batch;
  while (train::next_batch(*loader, batch)) use(batch, data::samples_of_ranks(loader->options(), batch.global_size));
}

ImageAnswers predict(const Job& job, train::Task& task, const data::Dataset& images, int64_t k, parallel::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::activations);
  ImageAnswers answers(mesh);
  task.set_training(false);
  for_each_batch(job, images, mesh, [&](const data::Batch& batch, std::span<const int64_t> sizes) {
    answers.add(batch, task.predict(batch, k, sizes), sizes);
  });
  return answers;
}

}  // namespace tandem::job
