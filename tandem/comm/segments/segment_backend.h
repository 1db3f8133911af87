#pragma once
#include <memory>

#include "tandem/comm/local/own_backend.h"
#include "tandem/comm/segments/segment_mailbox.h"
#include "tandem/comm/segments/stage.h"

namespace tandem::comm {

/// Processes of one host: collectives copy through segments that all of them map (see Stage), a turn at a time, so that
/// no call needs memory of its own. Messages between two ranks go through a SegmentMailbox; those of c10d's send() and
/// recv(), whose receivers know their sizes, through another backend.
///
/// Tells more than sockets do: which calls differ, which rank did not come, and that a rank's process has ended, within
/// 50 ms.
class SegmentBackend : public OwnBackend {
 public:
  /// `messages`: of the same ranks; has send, recv and recvAnysource.
  SegmentBackend(int rank, std::unique_ptr<Stage> stage, c10::intrusive_ptr<c10d::Backend> messages);
  ~SegmentBackend() override;

  const std::string getBackendName() const override { return "segments"; }

  WorkPointer send(Tensors& tensors, int to, int tag) override { return messages_->send(tensors, to, tag); }
  WorkPointer recv(Tensors& tensors, int from, int tag) override { return messages_->recv(tensors, from, tag); }
  WorkPointer recvAnysource(Tensors& tensors, int tag) override { return messages_->recvAnysource(tensors, tag); }

  using Bytes = SegmentMailbox::Bytes;

  /// Sends the bytes of all pieces as one message. The result waits until its receiver has it, and may be called when
  /// this object has ended. take() waits for the next message from a rank with this tag. Throw c10::DistBackendError.
  std::function<void()> post(int to, int tag, std::initializer_list<Bytes> pieces);
  void take(int from, int tag, const std::function<void(Bytes)>& read);

  std::chrono::milliseconds timeout() const override { return stage_->timeout(); }
  Transport transport() const override { return Transport::segments; }

 protected:
  void meet(const Call& call) override;
  void move(const Call& call, const Blocks& blocks) override;
  void reduce_in_place(const Call& call, const at::Tensor& tensor, Reduction op, std::optional<int> root) override;
  void reduce_parts(const Call& call, const Tensors& parts, const at::Tensor& output, Reduction op) override;
  void abort(const std::string& reason) override { stage_->leave(reason); }

 private:
  using Step = std::function<void(int64_t turn)>;

  void run_in_turns(const Call& call, CallTerms terms, const std::function<int64_t()>& turns,
                    const std::vector<Step>& steps);
  void take_turns(const Call& call, const std::function<int64_t()>& turns, const std::vector<Step>& steps);
  void reduce_small(const Call& call, const at::Tensor& tensor, Reduction op, std::optional<int> root);
  std::vector<const void*> slots(int64_t turn, int64_t offset = 0) const;
  int64_t share_bytes() const;

  const std::shared_ptr<Stage> stage_;
  const std::shared_ptr<SegmentMailbox> mailbox_;
  const c10::intrusive_ptr<c10d::Backend> messages_;
};

}  // namespace tandem::comm
