#pragma once
#include <functional>
#include <vector>

#include "tandem/parallel/aggregation.h"
#include "tandem/parallel/detail/flat_layout.h"
#include "tandem/parallel/parameter.h"

namespace tandem::parallel::detail {

/// Trained parameters of one type in one flat, of which each server updates a shard. Each parameter becomes a view of
/// the flat, once.
///
///   flat of a worker     shard 0 │ shard 1      parameters, and another of their gradients
///                        push ▼      ▼ ▲ pull
///   flat of a server      other  │ own          what the optimizer updates, and its gradient
///
/// The flats travel in messages of about 1 MiB: the same numbers of each shard. With `staleness` s there are s + 1
/// flats of gradients, and pull() and push() of one thread may run beside backward on another: weights that arrive are
/// kept aside until install(), and a server's shard is no part of its flat.
class ServedFlat {
 public:
  /// Takes the values of rank 0. Throws c10::ValueError for a parameter whose numbers do not lie next to each other.
  /// Collective.
  ServedFlat(std::vector<Parameter> parameters, const Servers& servers, int64_t staleness);
  ServedFlat(const ServedFlat&) = delete;
  ServedFlat& operator=(const ServedFlat&) = delete;

  const std::vector<Parameter>& parameters() const { return parameters_; }

  /// This rank's parts of parameter `i`: leaves, views of its shard.
  const std::vector<Parameter>& held(size_t i) const { return held_[i]; }

  /// Lays a worker's .grad into flat number `slot` of its gradients, of zeros, to which backward adds. No effect on a
  /// rank that only serves.
  void lay_gradients(size_t slot);

  /// Ends a worker's backward: the parameters' .grad become undefined. Throws c10::Error if one has left the flat.
  void take_gradients(size_t slot);

  /// Forgets the gradients of a rank that only serves.
  void drop_idle_gradients();

  /// Sends the gradients of `slot` times `factor` to the servers, and leaves what `aggregate` makes of them in the
  /// .grad of what this rank holds. Collective.
  void push(size_t slot, const Aggregate& aggregate, double factor, flight::Where where);

  /// Bytes that push() and pull() need for a moment. Collective.
  int64_t push_bytes(const Aggregate& aggregate);
  int64_t pull_bytes();

  /// Fills the workers' flats from the servers' shards, with staleness at the next install(). Collective.
  void pull();
  void install();

 private:
  Tensor by_shard(const Tensor& flat) const;  // [servers, numbers of a shard]
  void lay_out(int64_t staleness);
  void send_gradients(size_t slot, const Aggregate& aggregate, flight::Where where);
  void for_each_message(const std::function<void(int64_t first, int64_t count)>& send) const;

  std::vector<Parameter> parameters_;
  const Servers& servers_;
  FlatLayout layout_;
  Tensor flat_, arriving_;         // arriving_: of a worker; without staleness the flat itself
  std::vector<Tensor> gradients_;  // of a worker, by slot
  Tensor shard_, sum_;  // of a server: its shard and the gradient; without staleness the shard lies in the flat
  std::vector<std::vector<Parameter>> held_;
};

}  // namespace tandem::parallel::detail
