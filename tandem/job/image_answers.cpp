#include "tandem/job/image_answers.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/job/parts.h"
#include "tandem/train/batches.h"

namespace tandem::job {
namespace {

template <class Number>
void append(std::vector<Number>& all, const Tensor& part) {
  const auto own = part.contiguous();
  const auto* numbers = own.const_data_ptr<Number>();
  all.insert(all.end(), numbers, numbers + own.numel());
}

}  // namespace

void ImageAnswers::add(const data::Batch& batch, const Ranking& best, std::span<const int64_t> sizes) {
  const CategoryScope scope(Category::other);
  auto& group = mesh_.batch();
  kept_ = std::min(most_, best.classes.size(1));
  const auto gathered = [&](const Tensor& own) { return comm::gather(own.contiguous(), 0, group, 0, sizes); };
  append(labels_, gathered(batch.labels));
  append(classes_, gathered(best.classes.narrow(1, 0, kept_)));
  append(scores_, gathered(best.scores.narrow(1, 0, kept_)).to(at::kFloat));
}

Tensor ImageAnswers::labels() const { return at::tensor(labels_, at::kLong); }

Ranking ImageAnswers::best() const {
  const at::DimVector sizes = {static_cast<int64_t>(labels_.size()), kept_};
  return {at::tensor(classes_, at::kLong).view(sizes), at::tensor(scores_, at::kFloat).view(sizes)};
}

void embed(const Job& job, train::Task& task, const data::Dataset& images, const parallel::Mesh& mesh,
           const UseFeatures& use) {
  const auto loader = evaluation_loader(job, images, mesh.world());
  const auto batches = train::all_batches(*loader);
  task.answer(batches, train::Task::Question::features, 0, [&](const data::Batch& batch, const auto& answers) {
    use(batch, answers.features, batches.sizes(batch));
  });
}

void embed_with_mirrored(const Job& job, train::Task& task, const data::Dataset& images, const parallel::Mesh& mesh,
                         const UseFeatures& use) {
  const auto loader = evaluation_loader(job, images, mesh.world());
  auto batches = train::all_batches(*loader);
  bool is_mirrored = true;
  data::Batch batch;
  const auto next = [&, next_images = batches.next] {
    is_mirrored = !is_mirrored;
    if (!is_mirrored) {
      batch = {};
      return batch = next_images();
    }
    batch.images = batch.images.flip({3});
    return batch;
  };
  Tensor first;
  task.answer({2 * batches.count, next, batches.sizes}, train::Task::Question::features, 0,
              [&](const data::Batch& of, const auto& answers) {
                if (!first.defined()) {
                  first = answers.features;
                  return;
                }
                use(of, std::exchange(first, {}) + answers.features, batches.sizes(of));
              });
}

ImageAnswers predict(const Job& job, train::Task& task, const data::Dataset& images, int64_t k, parallel::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::activations);
  ImageAnswers answers(mesh);
  task.set_training(false);
  const auto loader = evaluation_loader(job, images, mesh.world());
  const auto batches = train::all_batches(*loader);
  task.answer(batches, train::Task::Question::classes, k,
              [&](const data::Batch& batch, const auto& own) { answers.add(batch, own.best, batches.sizes(batch)); });
  return answers;
}

}  // namespace tandem::job
