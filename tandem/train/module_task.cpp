#include "tandem/train/module_task.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/memory/meter.h"

namespace tandem::train {
namespace {

void check_scores(const Tensor& scores, int64_t samples) {
  TORCH_CHECK_VALUE(scores.dim() == 2 && scores.size(0) == samples, "module gives ", scores.sizes(), " for ", samples,
                    " images, wanted a row of scores for each: [", samples, ", classes]");
}

/// torch's losses leave some wrong labels out, and refuse others without a word on the data.
void check_labels(const Tensor& labels, int64_t classes) {
  const auto wrong = labels.lt(0).logical_or(labels.ge(classes)).nonzero();
  if (wrong.size(0) == 0) return;
  const auto label = labels[wrong[0].item<int64_t>()].item<int64_t>();
  throw DataError("label of a sample is " + std::to_string(label) + ", wanted 0.." + std::to_string(classes - 1) +
                      ", as the module gives " + std::to_string(classes) + " scores",
                  "correct the data set's labels, or give the module more scores");
}

Ranking best_of(const Tensor& scores, int64_t k) {
  TORCH_CHECK_VALUE(k <= scores.size(1), "module gives ", scores.size(1), " scores, wanted at least the ", k,
                    " that are asked for: as many as num_classes");
  const auto classes = std::get<1>(scores.topk(k, 1));
  return {classes.cpu(), scores.softmax(1).gather(1, classes).to(at::kCPU, at::kFloat)};
}

}  // namespace

ModuleTask::ModuleTask(std::shared_ptr<torch::nn::Module> module, memory::Chain chain, Loss loss)
    : module_(std::move(module)), chain_(std::move(chain)), loss_(std::move(loss)) {
  for (const auto& block : chain_.blocks) {
    const int number = block_number(block.name);
    for (const auto& parameter : memory::parameters_of(block)) memory::tag(parameter, Category::parameters, number);
    for (const auto& buffer : memory::buffers_of(block)) memory::tag(buffer, Category::buffers, number);
  }
  const auto all = module_->parameters();
  if (all.empty()) return;
  device_ = all[0].device();
  type_ = all[0].scalar_type();
}

Tensor ModuleTask::loss(const data::Batch& batch, std::span<const int64_t> sizes) {
  return memory::run(chain(batch, sizes), batch.images);
}

memory::Chain ModuleTask::chain(const data::Batch& batch, std::span<const int64_t> sizes) {
  memory::Chain chain{{memory::make_block("input", {}, [this](const Tensor& x) { return input(x); })}};
  for (const auto& block : chain_.blocks) chain.blocks.push_back(block);
  chain.blocks.push_back(memory::make_block(
      "loss", {}, [this, labels = batch.labels, sizes = std::vector(sizes.begin(), sizes.end())](const Tensor& scores) {
        return term(scores, labels, sizes);
      }));
  return chain;
}

Tensor ModuleTask::term(const Tensor& scores, const Tensor& labels, std::span<const int64_t> sizes) const {
  check_scores(scores, labels.size(0));
  check_labels(labels, scores.size(1));
  const auto own = static_cast<double>(labels.size(0));
  if (own == 0) return scores.sum();  // 0, from which backward reaches each parameter
  const auto mean = loss_(scores, labels.to(scores.device()));
  TORCH_CHECK_VALUE(mean.dim() == 0, "loss gives ", mean.sizes(), ", wanted one number, the mean over the samples: []");
  return mean * (own / static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
}

Tensor ModuleTask::embed(const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  return scores_of(batch).cpu();
}

Task::Answers ModuleTask::evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) {
  const auto scores = scores_of(batch);
  return {best_of(scores, k), term(scores, batch.labels, sizes)};
}

Ranking ModuleTask::predict(const data::Batch& batch, int64_t k, std::span<const int64_t>) {
  return best_of(scores_of(batch), k);
}

void ModuleTask::set_training(bool training) { module_->train(training); }

std::vector<Parameter> ModuleTask::parameters() const { return parameters_of(*module_); }

std::vector<Parameter> ModuleTask::buffers() const { return buffers_of(*module_); }

Tensor ModuleTask::input(const Tensor& images) const { return images.to(device_, type_, /*non_blocking=*/true); }

Tensor ModuleTask::scores_of(const data::Batch& batch) const {
  auto scores = memory::run(chain_, input(batch.images));
  check_scores(scores, batch.images.size(0));
  return scores;
}

}  // namespace tandem::train
