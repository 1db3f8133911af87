#include "tandem/parallel/detail/sums_beside.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"

namespace tandem::parallel::detail {
namespace {

comm::ProcessGroup& beside(comm::ProcessGroup& group) { return group.size() > 1 ? group.beside() : group; }

void sum_over(const Tensor& flat, comm::ProcessGroup& shards, comm::ProcessGroup& replicas) {
  const int64_t part = flat.size(0) / shards.size();
  comm::reduce_scatter_(flat, shards);
  comm::all_reduce_(flat.narrow(0, shards.rank() * part, part), replicas);
}

}  // namespace

SumsBeside::SumsBeside(Mesh& mesh)
    : shards_(beside(mesh.group(Axis::shard))), replicas_(beside(mesh.group(Axis::data))) {}

std::future<void> SumsBeside::start(Tensor flat) {
  const PhaseScope phase(Phase::backward);
  const CategoryScope scratch(Category::communication);
  auto done = std::make_shared<std::promise<void>>();
  auto result = done->get_future();
  shards_.queue([shards = &shards_, replicas = &replicas_, clock = clock_, done, start = OverlapClock::now(),
                 flat = std::move(flat)]() mutable {
    try {
      sum_over(flat, *shards, *replicas);
    } catch (...) {
      flat.reset();
      return done->set_exception(std::current_exception());
    }
    clock->has_travelled(start);
    flat.reset();  // whoever has waited frees the memory by letting go of it
    done->set_value();
  });
  return result;
}

void SumsBeside::wait(std::future<void>& sum) {
  const auto start = OverlapClock::now();
  sum.wait();
  clock_->has_waited(start);
  sum.get();
}

}  // namespace tandem::parallel::detail
