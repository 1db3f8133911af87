#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/memory/chain.h"
#include "tandem/parallel/mesh.h"

namespace tandem::train {

/// Numbers of one value in one step, over all ranks and in the layout of one device: they do not depend on how the
/// samples, or a value's dims, are divided over ranks, but for the order of sums.
struct BlockNumbers {
  int64_t step = 1, micro_batch = 0;  // the first step is 1, the first micro-batch 0
  std::string block, tensor;          // "output" or "gradient", of shortcuts "output.1", ...
  int64_t count = 0;                  // of its numbers
  uint64_t hash = 0;                  // of their bits, each with its sample and place
  double sum = 0, squares = 0, largest = 0;
  double projection = 0;  // their product with random numbers in [-1, 1), a sample and place each
};

using Trace = std::vector<BlockNumbers>;

/// As if the numbers of both were those of one value.
void add(BlockNumbers& numbers, const BlockNumbers& more);

/// By how much two values differ, relative to their norm or their largest number; 0 if all their sums are equal.
double difference(const BlockNumbers& a, const BlockNumbers& b);

inline constexpr int64_t kAllMicroBatches = -1;

/// Where two runs part.
struct TraceDifference {
  BlockNumbers where;        // of the first run; its micro_batch may be kAllMicroBatches
  std::optional<double> by;  // by their hashes: 0; nullopt: the other run lacks it, or has another number of numbers
};

/// The first value, in the order of the first run, that differs; nullopt: none does. If the runs do not have the same
/// samples in each micro-batch, or not as many micro-batches, those of a step count as one. `tolerance`: nullopt:
/// values are compared by their hashes. What the other run has besides, such as more steps, does not count.
std::optional<TraceDifference> first_difference(Trace one, Trace other, bool have_same_samples,
                                                std::optional<double> tolerance);

/// Follows what each block passes on in training, and the gradient of that, so that two runs can be compared.
class BlockTrace : public memory::BlockObserver {
 public:
  /// `in_shards`: micro-batches are the shards of a step, which are told as one. `device`: where ranks exchange
  /// numbers. The mesh must outlive this object.
  BlockTrace(parallel::Mesh& mesh, bool in_shards, c10::Device device = at::kCPU);

  /// Who is told, on rank 0 of the world, after each step: outputs in the order of the blocks, gradients in that of
  /// backward.
  void set_sink(std::function<void(const Trace&)> sink) { sink_ = std::move(sink); }

  /// Around the forward and backward of a step, counted from 0, on the thread that runs it. end_step() is collective.
  void begin_step(int64_t step);
  void end_step();

  void ran(const memory::Block& block, const memory::Flow& output) override;

 private:
  struct Entry {
    BlockNumbers numbers;
    bool is_part = false;     // of a block that has told of itself since
    bool has_samples = true;  // or else it is a loss, of shards one a rank
  };
  void note(int64_t micro_batch, const std::string& block, const std::string& name, const Tensor& value,
            int64_t first_sample, const std::optional<memory::Block::Part>& part);
  bool counts_here(const Tensor& value, bool is_divided) const;
  void follow_gradient(const memory::Block& block, const std::string& suffix, const Tensor& output,
                       int64_t first_sample);
  Trace told() const;

  parallel::Mesh& mesh_;
  bool in_shards_;
  c10::Device device_;
  std::function<void(const Trace&)> sink_;
  int64_t step_ = 0, micro_batch_ = -1;
  std::string first_block_, last_block_;
  std::vector<Entry> entries_;                                               // of this rank
  std::map<std::pair<int64_t, std::string>, std::vector<size_t>> of_block_;  // by micro-batch and block
  std::map<std::pair<int64_t, std::string>, int64_t> times_;                 // that it has told of itself
};

}  // namespace tandem::train
