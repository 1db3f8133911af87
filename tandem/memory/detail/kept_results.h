#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/memory/detail/operation_scope.h"
#include "tandem/memory/detail/tensor_trace.h"

namespace tandem::memory::detail {

/// Results of operations of a region, by the operations' places in it.
struct KeptResults {
  struct Result {
    Tensor tensor;
    TensorTrace trace;
  };
  struct Operation {
    std::string name;
    std::vector<Result> results;
  };
  std::map<int64_t, Operation> operations;
};

/// Runs operations, and keeps the results of those that `keep` wants.
class KeepingSink : public OperationSink {
 public:
  using Keep = std::function<bool(std::string_view)>;
  KeepingSink(const Keep& keep, KeptResults& kept) : keep_(keep), kept_(kept) {}

  void run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;

 private:
  const Keep& keep_;
  KeptResults& kept_;
  int64_t place_ = 0;
};

/// Runs the same operations again, or takes their results from those kept.
class ReplayingSink : public OperationSink {
 public:
  struct Options {
    bool gives_away;     // what is taken is not kept further
    bool is_restricted;  // refuses operations that draw from the default generator of the CPU
    std::string where;   // for errors
  };
  ReplayingSink(KeptResults& kept, Options options) : kept_(kept), options_(std::move(options)) {}

  void run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;

 private:
  void take(const c10::OperatorHandle& operation, KeptResults::Operation& from, torch::jit::Stack* stack) const;

  KeptResults& kept_;
  Options options_;
  int64_t place_ = 0;
};

}  // namespace tandem::memory::detail
