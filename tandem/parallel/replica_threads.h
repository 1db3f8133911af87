#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>

namespace tandem::parallel {

/// The threads on which the replicas of one process compute. They live as long as the object, and wait between calls.
///
/// `threads` of them share what one replica would have alone: each has max(1, intra_op / threads) threads within an
/// operation. With one thread, the replicas run on the calling thread, one after the other, with all of its threads;
/// then what they allocate, and when, is the same in each run.
///
/// If each has one thread within an operation, they are the calling thread and those with which it runs operations
/// (its OpenMP team): after an operation of the caller these wait busily for milliseconds, and would take the cores
/// from any other threads. Otherwise they are threads of this object, each with a team of its own.
class ReplicaThreads {
 public:
  /// `first_rank`: the memory meter and the other instruments count what replica i does for rank first_rank + i, as if
  /// it were a device of its own; nullopt: for the caller's. Throws c10::ValueError unless the numbers are 1 or more.
  ReplicaThreads(int threads, int intra_op, std::optional<int> first_rank = {});
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// For replicas on a device. On the CPU as many threads as replicas, but not more than the calling thread has within
  /// an operation. On a GPU one: it is the GPU that computes, and the thread on which libtorch runs its backward must
  /// not wait for others.
  static std::unique_ptr<ReplicaThreads> for_replicas(int replicas, c10::Device device,
                                                      std::optional<int> first_rank = {});

  /// Runs work(0) .. work(count - 1), replica i on thread i % threads, where the calling thread is 0 if it is one of
  /// them, in the caller's state of libtorch (gradient mode, autocast, context), and returns when all have ended. An
  /// exception of a replica comes to the caller with its number: Error and c10::Error in their type, others as
  /// RankError (base/error.h); of several, that of the lowest number. Only one call at a time.
  void run(int count, const std::function<void(int replica)>& work);

  int threads() const;

  struct Impl;  // where they come from

 private:
  std::unique_ptr<Impl> impl_;
  std::optional<int> first_rank_;
};

}  // namespace tandem::parallel
