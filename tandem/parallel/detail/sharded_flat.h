#pragma once
#include <optional>
#include <vector>

#include "tandem/parallel/detail/flat_layout.h"
#include "tandem/parallel/detail/flats_beside.h"
#include "tandem/parallel/detail/gather_groups.h"
#include "tandem/parallel/detail/gradient_watch.h"
#include "tandem/parallel/mesh.h"
#include "tandem/parallel/parameter.h"

namespace tandem::parallel::detail {

/// Replicated parameters of one type that all require a gradient, or none of them, in one flat of which each rank of
/// the shard axis has a shard. Each parameter becomes a view of the flat, once: filling and releasing the flat swaps
/// the memory under its storage, and neither copies nor counts as a change of the parameters.
///
///   released   parameter ─▶ flat: storage of 0 bytes        shard: 1/N, which the optimizer updates
///   in part    parameter ─▶ flat: storage of 0 bytes        shard: 1/N; besides 1/n, for n neighbours
///   open       parameter ─▶ flat: memory of an all_gather
///
/// Functions that say so are collective over the batch's ranks.
class ShardedFlat {
 public:
  struct Options {
    bool is_released = false;      // between uses; otherwise the flat is always open, and the shard is a part of it
    bool keeps_gradients = false;  // the flat of the gradients lives as long as this object
    bool in_order = false;         // see start_to_sum()
    std::optional<at::ScalarType> gathered = {};  // numbers are rounded to it when they are gathered
  };

  /// Takes the values of rank 0. `groups` must outlive the object. Throws c10::ValueError for a parameter whose numbers
  /// do not lie next to each other. Collective.
  ShardedFlat(std::vector<Parameter> parameters, const Options& options, GatherGroups& groups, Mesh& mesh);
  ShardedFlat(const ShardedFlat&) = delete;
  ShardedFlat& operator=(const ShardedFlat&) = delete;

  const std::vector<Parameter>& parameters() const { return parameters_; }
  bool keeps_gradients() const { return keeps_gradients_; }

  /// This rank's parts of parameter `i`: leaves, views of the shard.
  const std::vector<Parameter>& held(size_t i) const { return held_[i]; }

  bool is_open() const { return is_open_; }
  void open();   // collective
  void close();  // no effect on a flat that is always open

  /// Closes the flat, but keeps this rank's part among its neighbours, if there are any: open() then gathers from them.
  void close_in_part();

  /// Starts what open() then waits for, beside other gathers. Collective. drop() waits for it in vain.
  void start_to_open();
  void drop();

  /// Fills a flat that is always open from the ranks' shards, at once or until end_refresh() has returned. refresh()
  /// and start_to_refresh() are collective.
  void refresh();
  void start_to_refresh(FlatsBeside& beside);
  void end_refresh();

  /// From now on, what backward puts into the parameters' .grad moves into a flat, and what comes later is added there.
  void lay_gradients();

  /// The same for what backward has put there before.
  void lay_made_gradients();

  /// Starts to sum the flat of the gradients over the ranks; the parameters' .grad become undefined. end_sum() waits
  /// for the sum, and adds this rank's shard of it to the .grad of what it holds; until then the flat must not be laid
  /// again. In order: the ranks' gradients are added to that .grad at once, one after the other, in rank order. Throws
  /// c10::Error if a gradient has left the flat. Collective.
  void start_to_sum(FlatsBeside& sums);
  void end_sum(FlatsBeside& sums);

  bool is_travelling() const { return travelling_.defined(); }

  /// Forgets gradients that were laid, and waits in vain for a sum that was started.
  void drop_gradients();

  /// Memory as that of a flat of gradients which is being summed; undefined if this flat needs none.
  Tensor like_gradients() const;

  /// Bytes that start_to_sum() needs for a moment on another thread. Collective.
  int64_t sum_bytes(FlatsBeside& sums) const;

  /// Bytes that start_to_sum() in order needs for a moment. The flat must have gradients. Collective.
  int64_t exchange_bytes() const;

 private:
  void make_held(const Mesh& mesh);
  Tensor to_gather();
  void fill(Tensor gathered);
  int64_t own_first() const { return shards_.rank() * layout_.shard_size(); }
  Tensor empty_shard() const;
  const Parameter* first_held() const;
  Tensor sum_so_far() const;
  void give(const Tensor& sum);
  void take_gradient(size_t i);
  void fill_gradients();
  void reset_gradients();
  Tensor gradients_of_ranks() const;
  void add_in_order();

  std::vector<Parameter> parameters_;
  bool is_trained_, is_released_, keeps_gradients_, in_order_, is_open_ = true, is_laid_ = false;
  GatherGroups& groups_;
  comm::ProcessGroup &shards_, &replicas_;
  int block_;
  FlatLayout layout_;
  at::ScalarType gathered_;
  Tensor flat_, shard_, gradients_;
  Tensor part_;     // what neighbours gather from each other; undefined: the flat is not closed in part
  Tensor rounded_;  // the shard, while others gather it in another type
  Tensor sum_;  // this rank's shard of the sum that travels, if neither the flat nor an earlier sum has place for it
  Tensor ordered_sum_;  // in order: this rank's shard of the sum, if the flat of the gradients lives as long
  std::vector<std::vector<Parameter>> held_;
  std::vector<GradientWatch> watches_;
  std::optional<comm::Handle> coming_;  // the memory of the flat
  FlatsBeside::Future arriving_;        // the ranks' shards in flat_
  FlatsBeside::Future travelling_;      // the sum of gradients_
};

}  // namespace tandem::parallel::detail
