#pragma once
#include <ATen/core/TensorBody.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "tandem/comm/process_group.h"

namespace tandem::comm::detail {

/// reduce_scatter between processes, from its start to wait(). Gloo's own moves twice the bytes.
///
/// Each rank sends the others their parts and adds what it receives to its own, in rank order: the bits are those of
/// thread-ranks. Parts travel in chunks, of which two from each peer are here at a time: a chunk is added while it is
/// in the cache and the next one travels, and no buffer is as large as the tensor.
class SumExchange : public c10d::Work {
 public:
  static constexpr int64_t kChunkBytes = 1 << 20;

  /// `rows` is contiguous and stays as it is until wait() has returned; `sizes`: rows of dim 0 for each rank.
  SumExchange(at::Tensor rows, const std::vector<int64_t>& sizes, ProcessGroup& group);

  /// Sends, and is ready to receive. Counted as a call of the group's before.
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

  ProcessGroup* group_;  // until begin()
  c10::intrusive_ptr<c10d::Backend> backend_;
  int rank_, size_, tag_ = 0;
  std::vector<at::Tensor> parts_;  // flat, of the input, by rank
  at::Tensor result_, own_;        // own_: this rank's part
  int64_t chunk_size_;             // elements
  std::vector<Slot> slots_;
  std::vector<WorkPointer> sends_;
};

}  // namespace tandem::comm::detail
