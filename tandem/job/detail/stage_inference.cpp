#include "tandem/job/detail/stage_inference.h"

#include <ATen/ATen.h>

#include "tandem/comm/collectives.h"
#include "tandem/pipeline/schedule.h"

namespace tandem::job {
namespace {

/// The stages of this rank, on some batches.
class BatchStages : public pipeline::Stages {
 public:
  BatchStages(const std::function<memory::Chain(int stage)>& chain, const std::function<Tensor(int64_t batch)>& images,
              const std::function<void(int64_t batch, const Tensor& output)>& end)
      : chain_(chain), images_(images), end_(end) {}

  memory::Chain chain(int stage, int) override { return chain_(stage); }
  memory::Flow input(int batch) override { return {images_(batch)}; }
  void end_forward(int batch, const memory::Flow& output) override { end_(batch, output[0]); }

 private:
  const std::function<memory::Chain(int stage)>& chain_;
  const std::function<Tensor(int64_t batch)>& images_;
  const std::function<void(int64_t batch, const Tensor& output)>& end_;
};

}  // namespace

void StageInference::run(int64_t batches, const std::function<memory::Chain(int stage)>& chain,
                         const std::function<Tensor(int64_t batch)>& images,
                         const std::function<void(int64_t batch, const Tensor& output)>& end) {
  const at::NoGradGuard no_grad;
  auto& executor = executors_[batches];
  if (executor == nullptr) {
    auto program = pipeline::inference_program(rank_of_, static_cast<int>(batches));
    executor = std::make_unique<pipeline::Executor>(std::move(program), group_);
  }
  BatchStages stages(chain, images, end);
  executor->run(stages);
}

Tensor StageInference::share(const Tensor& value, at::IntArrayRef sizes, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  const int root = rank_of_.back();
  const auto all = group_.rank() == root ? value.to(at::kCPU, type).contiguous() : at::empty(sizes, type);
  comm::broadcast_(all, root, group_);
  return all;
}

}  // namespace tandem::job
