#include "tandem/parallel/hook/compressed_sum.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/comm/collectives.h"

namespace tandem::parallel {
namespace {

constexpr int64_t kFloatBytes = 4, kWireBytes = 2;

int64_t elements_at_once(int64_t elements, const GradientHookOptions& options) {
  return std::min(elements, std::max<int64_t>(1, options.bucket_bytes / kFloatBytes));
}

class CompressedSum : public GradientHook {
 public:
  explicit CompressedSum(Tensor scratch) : scratch_(std::move(scratch)) {}

  void sum(const GradientBucket& bucket, comm::ProcessGroup& group) override {
    const int64_t size = bucket.flat.numel();
    for (int64_t begin = 0; begin < size; begin += scratch_.numel()) {
      const auto piece = bucket.flat.narrow(0, begin, std::min(scratch_.numel(), size - begin));
      const auto sent = scratch_.narrow(0, 0, piece.numel());
      sent.copy_(piece);
      comm::all_reduce_(sent, group, comm::Reduce::sum, bucket.where);
      piece.copy_(sent);
    }
  }

 private:
  const Tensor scratch_;
};

std::unique_ptr<GradientHook> make(const std::vector<Tensor>& parameters, const GradientHookOptions& options,
                                   at::ScalarType wire) {
  int64_t elements = 0;
  for (const auto& parameter : parameters) elements += parameter.numel();
  return std::make_unique<CompressedSum>(
      at::empty({elements_at_once(elements, options)}, parameters[0].options().dtype(wire).requires_grad(false)));
}

}  // namespace

std::unique_ptr<GradientHook> make_half_sum(const std::vector<Tensor>& parameters, const GradientHookOptions& options) {
  return make(parameters, options, at::kHalf);
}

std::unique_ptr<GradientHook> make_bfloat16_sum(const std::vector<Tensor>& parameters,
                                                const GradientHookOptions& options) {
  return make(parameters, options, at::kBFloat16);
}

}  // namespace tandem::parallel
