#include "tandem/job/detail/stage_inference.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/pipeline/schedule.h"

namespace tandem::job {
namespace {

/// The stages of this rank, on parts of some images.
class ImageStages : public pipeline::Stages {
 public:
  ImageStages(std::vector<Tensor> parts, const std::function<memory::Chain(int stage)>& chain)
      : parts_(std::move(parts)), chain_(chain), results_(parts_.size()) {}

  memory::Chain chain(int stage, int) override { return chain_(stage); }
  memory::Flow input(int micro_batch) override { return {parts_[micro_batch]}; }
  void end_forward(int micro_batch, const memory::Flow& output) override { results_[micro_batch] = output[0]; }

  /// Undefined where the last stage is not.
  Tensor result() const { return results_[0].defined() ? at::cat(results_) : Tensor(); }

 private:
  std::vector<Tensor> parts_;
  const std::function<memory::Chain(int stage)>& chain_;
  std::vector<Tensor> results_;
};

}  // namespace

/// Enough that most stages work most of the time.
int StageInference::micro_batches(int64_t images) const {
  return static_cast<int>(std::clamp<int64_t>(images, 1, 2 * static_cast<int64_t>(rank_of_.size())));
}

int64_t StageInference::most_images(int64_t images) const {
  return comm::split_sizes(images, micro_batches(images)).front();
}

Tensor StageInference::run(const Tensor& images, const std::function<memory::Chain(int stage)>& chain) {
  const at::NoGradGuard no_grad;
  const int count = micro_batches(images.size(0));
  auto& executor = executors_[count];
  if (executor == nullptr) {
    executor = std::make_unique<pipeline::Executor>(pipeline::inference_program(rank_of_, count), group_);
  }
  ImageStages stages(images.split_with_sizes(comm::split_sizes(images.size(0), count)), chain);
  executor->run(stages);
  return stages.result();
}

Tensor StageInference::share(const Tensor& value, at::IntArrayRef sizes, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  const int root = rank_of_.back();
  const auto all = group_.rank() == root ? value.to(at::kCPU, type).contiguous() : at::empty(sizes, type);
  comm::broadcast_(all, root, group_);
  return all;
}

}  // namespace tandem::job
