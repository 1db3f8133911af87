#pragma once
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tandem/comm/local/local_exchange.h"
#include "tandem/comm/local/local_mailbox.h"
#include "tandem/comm/local/task_queue.h"
#include "tandem/comm/transport.h"

namespace tandem::comm {

/// What the thread-ranks of one group share.
struct LocalHub {
  /// `alone`: the only rank that exists; see LocalExchange.
  LocalHub(int size, std::chrono::milliseconds timeout, std::optional<int> alone = {})
      : exchange(size, timeout, alone), mailbox(size, timeout), is_alone(alone) {}

  /// Wakes all ranks that wait, and fails all later calls. The first reason is kept.
  void abort(const std::string& reason) {
    exchange.abort(reason);
    mailbox.abort(reason);
  }

  LocalExchange exchange;
  LocalMailbox mailbox;
  const bool is_alone;  // then c10d's messages are complete at once: nobody gets them; zeros arrive, or integers of -1
};

/// c10d backend of thread-ranks. CPU tensors are exchanged through shared memory, and sums run in rank order, so that
/// each call gives the same bits. Operations are complete when they return, unless run_later() is on: then they run on
/// a thread of the group, in the order of the calls. send() returns at once; its Work waits until the receiver has
/// copied the data.
///
/// The list forms (all_gather, reduce_scatter, all_to_all, gather, scatter) support parts of different sizes. Tensors
/// must be contiguous CPU tensors. Throws c10::DistBackendError if the ranks' calls differ, if a rank does not come, or
/// after an abort.
class LocalBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  /// `imagined`: what a rank that is alone imagines between the ranks. Callers allocate by it.
  LocalBackend(std::shared_ptr<LocalHub> hub, int rank, Transport imagined = Transport::memory);

  const std::string getBackendName() const override { return "local"; }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;

  std::chrono::milliseconds timeout() const { return hub_->exchange.timeout(); }
  Transport transport() const { return transport_; }

  /// If `later`, the collectives that follow return at once and run on the group's own thread.
  void run_later(bool later) { is_later_ = later; }

  /// Hands a tensor over to rank `to`: the memory itself if nobody else references it, else a copy. (libtorch's
  /// copy-on-write would save that copy, but two threads must not drop its last two references at once.)
  void hand_over(at::Tensor tensor, bool requires_grad, int to, int tag);
  std::pair<at::Tensor, bool> take_over(int from, int tag);

 private:
  using Body = std::function<void()>;

  WorkPointer run(c10d::OpType type, const char* operation, Tensors results, Body body);
  void move_blocks(const char* operation, uint64_t signature, const std::vector<LocalBlock>& give,
                   const std::vector<at::Tensor>& take);
  WorkPointer start_move(c10d::OpType type, const char* operation, uint64_t signature, Tensors give, Tensors take);
  WorkPointer start_reduce_scatter(Tensors parts, at::Tensor output, c10d::ReduceOp::RedOpType op);
  WorkPointer receive(Tensors& tensors, int from, int tag);
  LocalCall call(const char* operation, uint64_t signature) const;
  template <class Work>
  void meet_and(const LocalCall& own, const Work& work);

  std::shared_ptr<LocalHub> hub_;
  Transport transport_;
  TaskQueue queue_;
  bool is_later_ = false;
};

}  // namespace tandem::comm
