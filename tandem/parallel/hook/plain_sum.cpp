#include "tandem/parallel/hook/plain_sum.h"

#include "tandem/comm/collectives.h"

namespace tandem::parallel {
namespace {

class PlainSum : public GradientHook {
 public:
  void sum(const GradientBucket& bucket, comm::ProcessGroup& group) override {
    comm::all_reduce_(bucket.flat, group, comm::Reduce::sum, bucket.where);
  }
};

}  // namespace

std::unique_ptr<GradientHook> make_plain_sum(const std::vector<Tensor>&, const GradientHookOptions&) {
  return std::make_unique<PlainSum>();
}

}  // namespace tandem::parallel
