#pragma once
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::parallel {

/// The ranks of a group, as workers, which bring a tensor each, and as servers, which each get a part of all of them.
///
///   5 ranks, 0 apart                                 5 ranks, 2 apart
///   worker  0 1 2 3 4                                worker  0 1 2
///   server  0 1 2 3 4   each has one part of five    server  3 4     each has one part of two
///
/// The group must outlive the object.
class Servers {
 public:
  /// `apart`: the last so many ranks only serve, and the others do not; 0: each rank does both. Throws SettingsError if
  /// no rank would work.
  explicit Servers(comm::ProcessGroup& group, int apart = 0);

  int workers() const { return group_.size() - apart_; }
  int count() const { return apart_ == 0 ? group_.size() : apart_; }
  bool are_apart() const { return apart_ > 0; }

  bool is_worker() const { return group_.rank() < workers(); }
  bool is_server() const { return own_number() >= 0; }

  /// This rank among the servers; negative: it is none.
  int own_number() const { return apart_ == 0 ? group_.rank() : group_.rank() - workers(); }
  comm::ProcessGroup& group() const { return group_; }

  /// Numbers of each rank's part of n: comm::split_sizes() over the servers, and 0 for the other ranks.
  std::vector<int64_t> parts(int64_t n) const;

  /// This server's part of numbers [n]: a view.
  Tensor own_part(const Tensor& numbers) const;

  /// Returns a server its part of each worker's numbers, [workers, own], in rank order; another rank an empty tensor.
  ///   numbers  [n]  contiguous; those of a rank that only serves do not travel
  /// Wire: each worker sends n numbers, less its own part. Collective.
  Tensor push(const Tensor& numbers, flight::Where where = flight::Where::current()) const;

  /// Returns a worker the parts of all servers, [n]; a rank that only serves an empty tensor.
  ///   part  [own]  of this rank; of no server: anything of this type
  /// Wire: each worker gets n numbers, less its own part. Memory: of a server apart, a copy of the part for each
  /// worker. Collective.
  Tensor pull(const Tensor& part, int64_t n, flight::Where where = flight::Where::current()) const;

 private:
  std::vector<int64_t> of_each_worker(int64_t numbers) const;

  comm::ProcessGroup& group_;
  int apart_;
};

/// Throws SettingsError, naming `servers`, unless some of the ranks work.
void check_servers(int apart, int ranks);

}  // namespace tandem::parallel
