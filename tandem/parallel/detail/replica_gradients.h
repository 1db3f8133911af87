#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "tandem/base/tensor.h"

namespace torch::autograd {
struct Node;
}

namespace tandem::parallel::detail {

/// Sums the gradients that replicas make for weights that they share, in the order of the replicas, whatever the order
/// in which they come: the same bits in each run.
///
/// Graphs that are recorded while a Scope is open end at nodes of this object, not at those that write .grad. So the
/// replicas' backward passes may run at the same time, hooks on the weights run once, with the sum, and a term that has
/// been added is freed at once.
///
///   replica 0   graph ──▶ node of w ─┐
///   replica 1   graph ──▶ node of w ─┴▶ 0 + 1 ──▶ gradient of w
///
/// Of two replicas at work, the one that is ahead adds: the one that brings a weight's last term leaves the sum to the
/// next that comes first to a weight, so that both end at the same time.
class ReplicaGradients {
 public:
  /// `weights`: of each replica, leaves that require a gradient; replicas may hold the same tensors. Their sums are the
  /// gradients of those of replica 0.
  explicit ReplicaGradients(const std::vector<std::vector<Tensor>>& weights);
  ~ReplicaGradients();

  /// While the object lives, operations on the weights, in any thread, are recorded for this object.
  class Scope {
   public:
    explicit Scope(ReplicaGradients& gradients);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ReplicaGradients& gradients_;
    std::vector<std::shared_ptr<torch::autograd::Node>> before_;
  };

  /// The replica for which the calling thread works, while the object lives: of which a shared weight's gradients are.
  /// From its beginning to finish() the replica is at work.
  class OfReplica {
   public:
    OfReplica(ReplicaGradients& gradients, int replica);
    ~OfReplica();
    OfReplica(const OfReplica&) = delete;
    OfReplica& operator=(const OfReplica&) = delete;

   private:
    int before_;
  };

  /// Before the backward passes of so many replicas.
  void begin(int replicas);

  /// The backward of the replica is over: it makes no other gradients. Thread-safe.
  void finish(int replica);

  /// The sums, when all have finished; undefined where no replica made a gradient.
  std::vector<Tensor> take();

 private:
  class Leaf;
  struct Sum {
    /// Takes the terms that need no addition. Returns true if the next term is there and does need one.
    bool is_ready();
    void add_ready();

    std::mutex mutex;
    size_t next = 0;              // replica whose term is added next
    std::vector<Tensor> waiting;  // of later replicas
    std::vector<uint8_t> has_come;
    Tensor value;
  };

  void add(size_t weight, int replica, Tensor gradient);
  void work_off();

  std::vector<Tensor> tensors_;  // each once
  std::vector<std::shared_ptr<torch::autograd::Node>> leaves_;
  std::vector<std::unique_ptr<Sum>> sums_;
  std::atomic<int> at_work_{0};  // replicas
  std::mutex mutex_;
  std::vector<size_t> ready_;  // weights whose sums are left to whoever is ahead
};

}  // namespace tandem::parallel::detail
