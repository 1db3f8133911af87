#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "tandem/memory/detail/saved_tensor_hooks.h"
#include "tandem/memory/keep_ways.h"

namespace tandem::memory::detail {

/// The numbers of a tensor in a way to keep. Freed with the last node that needs them.
class Packed {
 public:
  /// `numbers`: of one dimension. `outer`: the hooks through which the parts are kept, or null.
  Packed(const KeepWay& way, const Tensor& numbers, HookSource* outer);

  /// The numbers, in new memory, or in that of the last call if somebody still holds it.
  Tensor restore();

 private:
  const KeepWay& way_;
  const int64_t count_;
  const at::TensorOptions options_;
  std::vector<torch::autograd::SavedVariable> parts_;
  std::mutex mutex_;
  c10::weak_intrusive_ptr<c10::StorageImpl> last_;
  c10::VariableVersion version_;  // of what restore() gave last
};

/// One call of keep_as(). The hooks of the tensors that the call saves own it.
///
///   graph ──▶ node ──▶ hooks ──▶ packed numbers of a storage, of which several hooks may share one
class KeepFrame : public HookSource, public std::enable_shared_from_this<KeepFrame> {
 public:
  KeepFrame(const KeepWay& way, const KeepOptions& options);

  Flow run(const std::function<Flow(const Flow&)>& forward, const Flow& inputs);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override;

  // For hooks.
  bool must_stay(const Tensor& tensor) const;
  std::shared_ptr<Packed> pack(const Tensor& tensor);
  torch::autograd::SavedVariable save_as_it_is(const Tensor& tensor) const;
  const std::string& where() const { return where_; }

 private:
  /// Of the numbers of a tensor without gaps: storage, first, count, type, version.
  using Numbers = std::tuple<const void*, int64_t, int64_t, at::ScalarType, uint32_t>;
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the address, not the memory
    std::weak_ptr<Packed> packed;
  };

  const KeepWay& way_;
  const std::string where_;
  HookSource* outer_ = nullptr;    // while forward runs
  std::set<const void*> weights_;  // storages of parameters and buffers
  std::set<const void*> inputs_;   // storages, while forward runs
  std::map<Numbers, Known> known_;
};

}  // namespace tandem::memory::detail
