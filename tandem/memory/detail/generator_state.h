#pragma once
#include <ATen/core/Generator.h>

#include <memory>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::memory::detail {

/// Where a generator stands in its sequence. For the CPU's generator 2.5 KB, in no tensor.
class GeneratorState {
 public:
  explicit GeneratorState(at::Generator generator);  // as it is now

  /// Puts the generator there.
  void restore() const;

  /// True if the generator stands elsewhere now.
  bool has_moved() const;

  const at::Generator& generator() const { return generator_; }
  bool is_default_of_cpu() const;

 private:
  struct Cpu;

  at::Generator generator_;
  std::shared_ptr<const Cpu> cpu_;  // of the CPU's generator
  Tensor other_;                    // of any other
};

/// torch's default generators that operations on these tensors may use.
std::vector<at::Generator> default_generators(const std::vector<Tensor>& inputs);

/// Puts generators elsewhere while the object lives.
class GeneratorScope {
 public:
  explicit GeneratorScope(const std::vector<GeneratorState>& states);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  std::vector<GeneratorState> before_;
};

}  // namespace tandem::memory::detail
