#pragma once
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tandem/comm/local_exchange.h"

namespace tandem::comm {

/// c10d backend of thread-ranks: CPU tensors are handed over in shared memory, sums run in rank order (the same bits on
/// each call). All operations finish before they return; the Work they give is complete.
///
/// Throws c10::DistBackendError when ranks disagree, stay away or were aborted. Tensors must be contiguous CPU tensors.
class LocalBackend : public c10d::Backend {
 public:
  LocalBackend(std::shared_ptr<LocalExchange> exchange, int rank);

  const std::string getBackendName() const override { return "local"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  template <class Body>
  c10::intrusive_ptr<c10d::Work> run(const LocalCall& call, c10d::OpType type, std::vector<at::Tensor> results,
                                     Body body);

  std::shared_ptr<LocalExchange> exchange_;
};

}  // namespace tandem::comm
