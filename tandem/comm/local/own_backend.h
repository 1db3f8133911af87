#pragma once
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "tandem/comm/local/local_exchange.h"
#include "tandem/comm/local/task_queue.h"
#include "tandem/comm/transport.h"

namespace tandem::comm {

/// c10d backend of ranks on one host. Tensors travel through memory, and sums run in rank order, so that each call
/// gives the same bits. Operations are complete when they return (on a device: when the current stream has come to
/// them), unless run_later() is on: then they run on a thread of the group, in the order of the calls.
///
/// The list forms (all_gather, reduce_scatter, all_to_all, gather, scatter) support parts of different sizes. Tensors
/// must be contiguous, and all on the CPU or all on devices, as the class says. Throws c10::DistBackendError if the
/// ranks' calls differ, if a rank does not come, or after an abort.
class OwnBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Reduction = c10d::ReduceOp::RedOpType;

  /// `queue`: whose thread runs what runs later; backends of one rank in one group share theirs.
  OwnBackend(int rank, int size, std::shared_ptr<TaskQueue> queue = std::make_shared<TaskQueue>())
      : Backend(rank, size), queue_(std::move(queue)) {}

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
  WorkPointer barrier(const c10d::BarrierOptions& options) override;

  virtual std::chrono::milliseconds timeout() const = 0;
  virtual Transport transport() const = 0;

  /// If `later`, the collectives that follow return at once and run on the group's own thread.
  void run_later(bool later) { is_later_ = later; }

  const std::shared_ptr<TaskQueue>& queue() const { return queue_; }

 protected:
  /// What the ranks must agree on, but for the sizes of what moves.
  struct Call {
    const char* operation;
    uint64_t signature;
  };

  /// One tensor a rank: undefined where nothing goes to, or comes from, that rank.
  struct Blocks {
    Tensors give, take;
    bool is_same = false;  // `give` has one tensor for all that get any; told alike on all ranks
  };

  /// What a call has to do besides that runs later than it was made.
  struct Later {
    std::function<void(const std::function<void()>& body)> around;  // calls the body; null: nothing is around it
    std::function<void()> await;                                    // by whoever waits; null: nothing
  };

  virtual bool is_of_host() const { return true; }

  /// Called when the call is made, with the tensors that it will use.
  virtual Later make_later(const Tensors&) { return {}; }

  // The calls themselves. Each blocks, and throws LocalFailure if the ranks do not come together.
  virtual void meet(const Call& call) = 0;
  virtual void move(const Call& call, const Blocks& blocks) = 0;
  /// Sums, or what `op` says, in place: at `root`, or at all ranks.
  virtual void reduce_in_place(const Call& call, const at::Tensor& tensor, Reduction op, std::optional<int> root) = 0;
  /// output = the reduction of what each rank has in parts[this rank].
  virtual void reduce_parts(const Call& call, const Tensors& parts, const at::Tensor& output, Reduction op) = 0;
  /// Fails the calls of all ranks; the first reason is kept.
  virtual void abort(const std::string& reason) = 0;

  /// Runs `body`, now or on the group's thread. That thread holds no tensor any more when the work is complete, so that
  /// whoever has waited frees memory by letting go of it.
  /// `used`: the tensors that `body` uses, if it runs later.
  WorkPointer run(c10d::OpType type, const char* operation, Tensors results, const Tensors& used,
                  std::function<void()> body);

  /// Waits for calls on the group's thread. A class whose calls it runs must do so before it ends.
  void drain() { queue_->drain(); }

  /// The work of a call that is over.
  WorkPointer done(c10d::OpType type, Tensors results);

  /// Aborts, so that no rank accesses memory that is gone, and throws c10::DistBackendError.
  [[noreturn]] void fail(const char* operation, const LocalFailure& failure);

  /// Keeps memory while a work lives that run() has made.
  static void hold(c10d::Work& work, at::Tensor scratch);

  /// The name and the description of the call that the calling thread is in; `call`, if it is in none.
  static const char* name_of(const Call& call);
  static std::string words_of(const Call& call);

  /// What `own` tells the other ranks of a call.
  static void describe(const Call& call, LocalCall& own);

  /// The only tensor of a list, checked.
  at::Tensor only(const Tensors& tensors, const char* operation) const;

 private:
  void check_tensor(const at::Tensor& tensor, const char* operation) const;
  Tensors checked_list(const std::vector<Tensors>& lists, const char* operation) const;
  WorkPointer start_move(c10d::OpType type, const Call& call, Blocks blocks);
  WorkPointer start_reduce(c10d::OpType type, const Call& call, const at::Tensor& tensor, Reduction op,
                           std::optional<int> root);
  WorkPointer start_reduce_parts(Tensors parts, const at::Tensor& output, Reduction op);
  Tensors none() const { return Tensors(getSize()); }

  std::shared_ptr<TaskQueue> queue_;
  bool is_later_ = false;
};

}  // namespace tandem::comm
