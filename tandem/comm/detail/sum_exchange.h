#pragma once
#include <ATen/core/TensorBody.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "tandem/comm/process_group.h"

namespace tandem::comm::detail {

/// A reduce_scatter between processes. Gloo's own reduce_scatter moves twice the bytes.
///
/// Each rank sends the other ranks their parts, and sums the parts that it receives with its own in rank order, so that
/// the result equals that of thread-ranks bit for bit. Parts travel in chunks, and a rank holds at most two chunks from
/// each peer: one chunk is added while it is in the cache and the next one travels. No buffer is as large as the
/// tensor.
class SumExchange : public c10d::Work {
 public:
  /// `rows` must be contiguous and must not change until wait() has returned. `sizes`: number of rows of dim 0 for each
  /// rank.
  SumExchange(at::Tensor rows, const std::vector<int64_t>& sizes, ProcessGroup& group);

  /// Starts to send and to receive. The group must have counted this call before.
  void begin();

  bool wait(std::chrono::milliseconds timeout) override;

  /// This rank's rows of the sum, complete after wait().
  at::Tensor result() const { return result_; }

 private:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  struct Slot {
    std::vector<at::Tensor> chunks;  // by rank; this rank's own is not defined
    std::vector<WorkPointer> works;
  };

  int64_t chunks_of(const at::Tensor& part) const;
  at::Tensor cut(const at::Tensor& part, int64_t chunk) const;
  void send(int peer, int64_t chunk);
  void receive(int64_t chunk);
  void add(int64_t chunk);

  ProcessGroup* group_;  // used until begin() has returned
  c10::intrusive_ptr<c10d::Backend> backend_;
  int rank_, size_, tag_ = 0;
  std::vector<at::Tensor> parts_;  // parts of the input by rank, flattened
  at::Tensor result_, own_;        // own_: this rank's part
  int64_t chunk_size_;             // elements
  std::vector<Slot> slots_;
  std::vector<WorkPointer> sends_;
};

}  // namespace tandem::comm::detail
