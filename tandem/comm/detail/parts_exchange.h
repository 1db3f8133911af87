#pragma once
#include <ATen/core/TensorBody.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "tandem/comm/process_group.h"

namespace tandem::comm::detail {

/// An all_gather between processes. Gloo's own gathers into a buffer of all parts, which it copies, and wants parts of
/// equal sizes. Here each rank sends its part to the other ranks, and parts arrive where they belong.
class PartsExchange : public c10d::Work {
 public:
  /// `parts`: those of all ranks, contiguous; this rank's own must not change until wait() has returned.
  PartsExchange(std::vector<at::Tensor> parts, ProcessGroup& group);

  /// Starts to send and to receive. The group must have counted this call before.
  void begin();

  bool wait(std::chrono::milliseconds timeout) override;

 private:
  ProcessGroup* group_;  // used until begin() has returned
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::vector<at::Tensor> parts_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

/// Tag of the messages of the group's current call, above the tags of other messages. Calls that run at the same time
/// have different tags.
int exchange_tag(const ProcessGroup& group);

}  // namespace tandem::comm::detail
