#include "tandem/parallel/statistics_exchange.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/parallel/mesh.h"

namespace tandem::parallel {
namespace {

class Exchange : public memory::StatisticsExchange {
 public:
  Exchange(std::unique_ptr<comm::ProcessGroup> channel, flight::Where where)
      : channel_(std::move(channel)), where_(where) {}

  Tensor gather(const Tensor& own) override {
    const at::NoGradGuard no_grad;
    const CategoryScope scope(Category::communication);
    const std::vector<int64_t> one_each(channel_->size(), 1);
    return comm::all_gather(own.unsqueeze(0), *channel_, 0, one_each, where_);
  }

  void add(const Tensor& own) override {
    const at::NoGradGuard no_grad;
    const CategoryScope scope(Category::communication);
    comm::all_reduce_(own, *channel_, comm::Reduce::sum, where_);
  }

 private:
  std::unique_ptr<comm::ProcessGroup> channel_;
  flight::Where where_;
};

}  // namespace

std::shared_ptr<memory::StatisticsExchange> share_statistics(comm::ProcessGroup& group, flight::Where where) {
  if (group.size() == 1) return nullptr;
  return std::make_shared<Exchange>(private_channel(group, where), where);
}

}  // namespace tandem::parallel
