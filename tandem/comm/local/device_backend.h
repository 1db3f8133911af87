#pragma once
#include <memory>

#include "tandem/comm/local/local_backend.h"

namespace c10 {
class Event;
}

namespace tandem::comm {

/// Thread-ranks whose tensors are on devices, which they may share: each rank's stream reads the other ranks' tensors
/// where they are. Threads meet twice in a call, and wait for each other there, but never for a device: events order
/// what their streams do.
///
///   rank 0  ready ─┐            ┌─ stream waits for all `ready`, reads, sums ─ done ─┐        ┌─ waits for all `done`
///   rank 1  ready ─┤ all there  ├─ stream waits for all `ready`, reads, sums ─ done ─┤ parted ├─ waits for all `done`
///
/// A call that runs later does so on a stream of its own, which begins where the caller's stream was; who waits for its
/// work makes the current stream wait. Sums run in rank order. Memory: a reduce_scatter that is not in place has one
/// buffer of its result's size; 16-bit types are summed in a buffer of float, of 1 / ranks of the tensor; of a rank on
/// another device its part is copied.
///
/// A rank that waits for others in backward must have a thread of autograd of its own: see base/autograd_engine.h.
class DeviceBackend final : public OwnBackend {
 public:
  /// Beside `host`, the rank's backend for CPU tensors: calls of both are in one order.
  DeviceBackend(std::shared_ptr<LocalHub> hub, const LocalBackend& host);
  ~DeviceBackend() override { drain(); }

  const std::string getBackendName() const override { return "local device"; }
  std::chrono::milliseconds timeout() const override { return hub_->exchange.timeout(); }
  Transport transport() const override { return Transport::memory; }

 protected:
  bool is_of_host() const override { return false; }
  Later make_later(const Tensors& tensors) override;
  void meet(const Call& call) override;
  void move(const Call& call, const Blocks& blocks) override;
  void reduce_in_place(const Call& call, const at::Tensor& tensor, Reduction op, std::optional<int> root) override;
  void reduce_parts(const Call& call, const Tensors& parts, const at::Tensor& output, Reduction op) override;
  void abort(const std::string& reason) override { hub_->abort(reason); }

 private:
  struct Visit;
  template <class Body>
  void meet_and(const Call& call, LocalCall own, Visit visit, const Body& body);

  std::shared_ptr<LocalHub> hub_;
  std::optional<c10::Stream> stream_;  // of calls that run later
};

}  // namespace tandem::comm
