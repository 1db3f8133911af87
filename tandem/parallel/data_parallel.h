#pragma once
#include <torch/nn/module.h>

#include <concepts>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/base/context.h"
#include "tandem/parallel/parallel_apply.h"
#include "tandem/parallel/replicate.h"
#include "tandem/parallel/scatter.h"

namespace tandem::parallel {

struct DataParallelOptions {
  std::vector<c10::Device> devices = {2, c10::DeviceType::CPU};  // of each replica; the first holds the weights
  std::optional<c10::Device> output_device = {};                 // of the results; nullopt: the first device
  int64_t dim = 0;                                               // of the batch
  std::vector<int64_t> chunk_sizes = {};                         // of each replica's part; empty: chunk_sizes()
  Scalars scalars = Scalars::vector;
  std::optional<int> first_rank = {};  // for the memory meter: see ReplicaThreads
};

/// A module whose batches several replicas in one process share, each on a thread of its own; on a GPU they take turns.
///
///                 ┌─▶ thread 0: replica 0 ─┐
///   batch ─scatter┼─▶ thread 1: replica 1 ─┼gather─▶ output, or one loss
///                 └─▶ thread 2: replica 2 ─┘
///   backward       runs on the same threads; gradients of weights are summed in the order of the replicas
///
/// Weights, optimizer and files are those of the module that was given: nothing has another name, and after any number
/// of steps it is what one device would have made of it, but for rounding and batch statistics. A module that returns
/// its loss (a scalar, with Scalars::mean) leaves no whole output on any device.
///
/// Replicas share the memory of the weights. Buffers: before each forward the other replicas take copies of those of
/// replica 0, and what they make of them is lost; so batch normalisation normalises each part by itself, and its
/// running statistics move by the part of replica 0. In replicas above 0 the context holds batch statistics
/// (BatchStatistics::leave, base/context.h), and in each replica its first_sample is that of the part.
///
/// Replicas that have no part of a batch are left out. The number of threads is that of
/// ReplicaThreads::for_replicas(). Devices: one, any number of times; for several, use a rank each and
/// DistributedDataParallel. Not thread-safe. The object must outlive the graphs that its forward made.
/// Source: torch.nn.DataParallel.
class DataParallel {
 public:
  /// Clones the module, which must be a torch::nn::Cloneable. `Module` has a method forward() from Tensor to Tensor, or
  /// from Nested to Nested.
  template <std::derived_from<torch::nn::Module> Module>
  explicit DataParallel(const std::shared_ptr<Module>& module, DataParallelOptions options = {})
      : DataParallel(replicate(module, static_cast<int>(options.devices.size())), &forward_of<Module>, options) {}

  /// Runs forward(replica, part). `replicas`: the module, then a clone for each other replica (replicate()); or only
  /// the module, which all replicas then share: it must write to nothing but buffers that obey the context's rule for
  /// batch statistics, as models::Backbone does.
  using Forward = std::function<Nested(torch::nn::Module& replica, const Nested& part)>;
  DataParallel(std::vector<std::shared_ptr<torch::nn::Module>> replicas, Forward forward, DataParallelOptions options);

  /// Throws c10::ValueError: no device, different devices, a parameter or buffer on another device than these, and as
  /// scatter() and gather(). Exceptions of a replica have its number.
  Nested forward(const Nested& batch);
  Tensor forward(const Tensor& batch) { return forward(Nested(batch)).tensor(); }

 private:
  template <class Module>
  static Nested forward_of(torch::nn::Module& replica, const Nested& part) {
    auto& own = dynamic_cast<Module&>(replica);
    if constexpr (requires { Nested(own.forward(part)); }) {
      return own.forward(part);
    } else {
      return Nested(own.forward(part.tensor()));
    }
  }

  void check_devices() const;
  void refresh_replicas();
  torch::nn::Module& replica(int number) const;
  std::vector<std::vector<Tensor>> weights() const;

  std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
  Forward forward_;
  DataParallelOptions options_;
  std::unique_ptr<ReplicaThreads> threads_;
};

/// The context of a replica whose part begins at sample `first` of its batch: see DataParallel.
struct ReplicaScope : ContextScope {
  ReplicaScope(int replica, int64_t first);
};

}  // namespace tandem::parallel
