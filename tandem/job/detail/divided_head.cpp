#include "tandem/job/detail/divided_head.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/classifier/pipeline_head.h"
#include "tandem/job/parts.h"

namespace tandem::job::detail {
namespace {

using pipeline::What;

class StepHead : public train::DividedHead {
 public:
  StepHead(const classifier::ClassShardedHead& head, const DividedHeadOptions& options,
           std::vector<classifier::HeadRows> micro_batches, std::vector<int64_t> samples, parallel::Mesh& mesh)
      : head_(head),
        samples_(std::move(samples)),
        passes_(head, options.over, options.stage, mesh, std::move(micro_batches), options.is_imagined) {}

  void end_forward(int i, const Tensor& features) override { passes_.end_forward(i, features); }

  std::vector<comm::Handle> run(const pipeline::Action& action) override {
    const CategoryScope category(Category::activations);
    const BlockScope block(block_number(kHeadBlock));
    const int i = action.micro_batch;
    switch (action.what) {
      case What::scores:
        passes_.scores(i);
        return {};
      case What::class_gradient:
        passes_.class_gradient(i);
        return {};
      case What::send_features:
        return passes_.send_features(i);
      case What::receive_features:
        passes_.receive_features(i);
        return {};
      case What::send_scores:
        return passes_.send_scores(i);
      case What::receive_scores:
        passes_.receive_scores(i);
        return {};
      case What::send_totals:
        return passes_.send_totals(i);
      case What::receive_totals:
        passes_.receive_totals(i);
        return {};
      default:
        TORCH_INTERNAL_ASSERT(false, text_of(action), " is not of the classifier");
    }
  }

  Tensor loss(int i) override { return passes_.loss(i); }
  Tensor take_gradient(int i) override {
    const CategoryScope category(Category::activations);
    const BlockScope block(block_number(kHeadBlock));
    return passes_.take_gradient(i);
  }

  Tensor features_like(int i) override {
    const auto options = head_.weight().options().requires_grad(false);
    return at::empty({samples_[static_cast<size_t>(i)], head_.options().dim}, options);
  }
  const Tensor& weight() override { return head_.weight(); }

 private:
  const classifier::ClassShardedHead& head_;
  std::vector<int64_t> samples_;
  classifier::PipelineHead passes_;
};

}  // namespace

std::unique_ptr<train::DividedHead> make_divided_head(const classifier::ClassShardedHead& head,
                                                      const DividedHeadOptions& options,
                                                      const std::vector<train::BatchPart>& parts,
                                                      parallel::Mesh& mesh) {
  std::vector<classifier::HeadRows> micro_batches;
  std::vector<int64_t> samples;
  for (const auto& part : parts) {
    micro_batches.push_back({part.batch.labels, part.sizes, part.shares.at(0) * options.scale});
    samples.push_back(part.batch.labels.size(0));
  }
  return std::make_unique<StepHead>(head, options, std::move(micro_batches), std::move(samples), mesh);
}

}  // namespace tandem::job::detail
