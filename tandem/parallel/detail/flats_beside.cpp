#include "tandem/parallel/detail/flats_beside.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/detail/stream_future.h"

namespace tandem::parallel::detail {
namespace {

comm::ProcessGroup& beside(comm::ProcessGroup& group) { return group.size() > 1 ? group.beside() : group; }

/// `replicas`: null: there are none. A sum that runs must not ask a group of one, which may have gone with its mesh.
void sum_over(const Tensor& flat, comm::ProcessGroup& shards, comm::ProcessGroup* replicas) {
  const int64_t part = flat.size(0) / shards.size();
  comm::reduce_scatter_(flat, shards);
  if (replicas != nullptr) comm::all_reduce_(flat.narrow(0, shards.rank() * part, part), *replicas);
}

}  // namespace

FlatsBeside::FlatsBeside(Mesh& mesh)
    : shards_(beside(mesh.group(Axis::shard))),
      replicas_(mesh.size(Axis::data) > 1 ? &mesh.group(Axis::data).beside() : nullptr) {}

template <class Work>
FlatsBeside::Future FlatsBeside::queue(Tensor flat, Work work) {
  const CategoryScope scratch(Category::communication);
  const auto done = future_of(c10::NoneType::get(), flat);
  shards_.queue([done, on = storages_of(flat), work = std::move(work), flat = std::move(flat)]() mutable {
    try {
      work(flat);
    } catch (...) {
      flat.reset();
      return done->setError(std::current_exception());
    }
    flat.reset();  // whoever has waited frees the memory by letting go of it
    complete(*done, c10::IValue(), on);
  });
  return done;
}

FlatsBeside::Future FlatsBeside::start_to_sum(Tensor flat) {
  const PhaseScope phase(Phase::backward);
  return queue(std::move(flat), [shards = &shards_, replicas = replicas_, clock = clock_,
                                 start = OverlapClock::now()](const Tensor& whole) {
    sum_over(whole, *shards, replicas);
    clock->has_travelled(start);
  });
}

FlatsBeside::Future FlatsBeside::start_to_gather(Tensor flat) {
  return queue(std::move(flat), [shards = &shards_](const Tensor& whole) { comm::all_gather_(whole, *shards); });
}

int64_t FlatsBeside::sum_bytes(const Tensor& flat) {
  const memory::ProbeScope probe;
  sum_over(flat, shards_, replicas_);
  return probe.account().peak_bytes();
}

void FlatsBeside::wait(const Future& sum) {
  const auto start = OverlapClock::now();
  sum->wait();
  clock_->has_waited(start);
  if (sum->hasError()) std::rethrow_exception(sum->exception_ptr());
}

}  // namespace tandem::parallel::detail
