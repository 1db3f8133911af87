#include "tandem/comm/detail/staged_backend.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/comm/detail/group_calls.h"

namespace tandem::comm::detail {
namespace {

using Future = c10::ivalue::Future;

/// A call that is over.
class DoneWork : public c10d::Work {
 public:
  DoneWork(int rank, c10d::OpType type, std::vector<at::Tensor> results)
      : Work(rank, type), results_(std::move(results)) {
    finish();
  }

  std::vector<at::Tensor> result() override { return results_; }

  c10::intrusive_ptr<Future> getFuture() override {
    const std::vector<c10::Device> devices = {results_[0].device()};
    auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
    future->markCompleted(c10::IValue(results_));
    return future;
  }

 private:
  std::vector<at::Tensor> results_;
};

/// `call` works in place on copies that are on the host.
template <class Call>
c10::intrusive_ptr<c10d::Work> run(int rank, c10d::OpType type, const std::vector<at::Tensor>& tensors,
                                   const Call& call) {
  std::vector<at::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.cpu());
  call(copies)->wait();
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(copies[i]);
  return c10::make_intrusive<DoneWork>(rank, type, tensors);
}

}  // namespace

StagedBackend::StagedBackend(c10::intrusive_ptr<c10d::Backend> host)
    : Backend(host->getRank(), host->getSize()), host_(std::move(host)) {}

StagedBackend::WorkPointer StagedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return run(getRank(), c10d::OpType::BROADCAST, tensors,
             [&](Tensors& copies) { return host_->broadcast(copies, options); });
}

StagedBackend::WorkPointer StagedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return run(getRank(), c10d::OpType::ALLREDUCE, tensors,
             [&](Tensors& copies) { return host_->allreduce(copies, options); });
}

bool is_staged(const at::Tensor& x, const ProcessGroup& group) {
  return !x.is_cpu() && dynamic_cast<const StagedBackend*>(&group.calls().backend(x.device().type())) != nullptr;
}

}  // namespace tandem::comm::detail
