#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tandem/comm/process_group.h"

namespace tandem::comm::detail {

/// c10d backend for tensors on devices that the group's own backend does not reach: the numbers are copied to the host,
/// exchanged there by the backend for CPU tensors, and copied back. It has only what libtorch's Reducer and its sums of
/// gradients call; the operators stage their tensors themselves (transfer.cpp). A call is complete when it returns.
/// Host memory: one copy of the tensor.
class StagedBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  explicit StagedBackend(c10::intrusive_ptr<c10d::Backend> host);

  const std::string getBackendName() const override { return "staged"; }
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;

 private:
  c10::intrusive_ptr<c10d::Backend> host_;
};

/// Returns true if messages of x go through the host.
bool is_staged(const at::Tensor& x, const ProcessGroup& group);

}  // namespace tandem::comm::detail
