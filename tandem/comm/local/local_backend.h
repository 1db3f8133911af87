#pragma once
#include <memory>

#include "tandem/comm/local/local_exchange.h"
#include "tandem/comm/local/local_mailbox.h"
#include "tandem/comm/local/own_backend.h"

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

/// Thread-ranks: they read and write each other's tensors in place. send() returns at once; its Work waits until the
/// receiver has copied the data.
class LocalBackend : public OwnBackend {
 public:
  /// `imagined`: what a rank that is alone imagines between the ranks. Callers allocate by it.
  LocalBackend(std::shared_ptr<LocalHub> hub, int rank, Transport imagined = Transport::memory);
  ~LocalBackend() override { drain(); }

  const std::string getBackendName() const override { return "local"; }

  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  std::chrono::milliseconds timeout() const override { return hub_->exchange.timeout(); }
  Transport transport() const override { return transport_; }

  /// Hands a tensor over to rank `to`: the memory itself if nobody else references it, else a copy. (libtorch's
  /// copy-on-write would save that copy, but two threads must not drop its last two references at once.)
  void hand_over(at::Tensor tensor, bool requires_grad, int to, int tag);
  std::pair<at::Tensor, bool> take_over(int from, int tag);

 protected:
  void meet(const Call& call) override;
  void move(const Call& call, const Blocks& blocks) override;
  void reduce_in_place(const Call& call, const at::Tensor& tensor, Reduction op, std::optional<int> root) override;
  void reduce_parts(const Call& call, const Tensors& parts, const at::Tensor& output, Reduction op) override;
  void abort(const std::string& reason) override { hub_->abort(reason); }

 private:
  WorkPointer receive(Tensors& tensors, int from, int tag);
  template <class Work>
  void meet_and(const Call& call, LocalCall own, const Work& work);

  std::shared_ptr<LocalHub> hub_;
  Transport transport_;
};

}  // namespace tandem::comm
