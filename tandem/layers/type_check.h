#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/value_observer.h"
#include "tandem/comm/process_group.h"
#include "tandem/memory/chain.h"
#include "tandem/parallel/parameter.h"

namespace tandem::layers {

/// A value is not what its reader takes along an axis: gradients would be wrong.
class TypeError : public SettingsError {
 public:
  using SettingsError::SettingsError;
};

/// Follows what values are along the axes of a mesh (Along) while a model runs, and so proves before the first step
/// that its gradients are those of one device. Every operator of torch gives what it takes: parts give parts. Values
/// of two kinds meet in one operator only so:
///
///   varying, replicated      give a varying value: each rank works out its part
///   invariant and another    a fault, if it has a gradient: copy_to_region() makes it replicated, and sums the
///   gradient partial                  a fault, except in operators that are linear: reduce_from_region() first
///
/// The exchanges of comm/region.h and comm/collectives.h say what they take and give; layers, which of their products
/// are terms of a sum. Source: the types of spmd_types (github.com/meta-pytorch/spmd_types).
class TypeCheck {
 public:
  struct Direction {
    parallel::Axes axes;              // one, or those of a batch together
    const comm::ProcessGroup* group;  // along them, of several ranks; others than this may be imagined
    bool sums_gradients = false;      // of what each rank holds whole: as a strategy of data parallelism does
    bool has_unequal_rows = false;    // what is varying has more rows on one rank than on another
  };

  /// Follows values on this thread while the object lives, to which the groups must live. `parameters`: varying along
  /// the axes that they are split along; otherwise replicated where gradients are summed, and else invariant. Throws
  /// TypeError if a tensor is listed twice, whose gradient a norm would count twice.
  TypeCheck(std::vector<Direction> directions, const std::vector<parallel::Parameter>& parameters);
  ~TypeCheck();
  TypeCheck(const TypeCheck&) = delete;
  TypeCheck& operator=(const TypeCheck&) = delete;

  /// What a value is along the axes of a direction.
  void know(const Tensor& value, parallel::Axes axes, Along along);

  /// Runs a model on its input. Throws TypeError at the first fault, which names layer, operator and axis.
  memory::Flow run(const memory::Chain& chain, memory::Flow input);

  /// Throws TypeError unless the value is that, and after a fault that has been met since. `what`: its name.
  void expect(const std::string& what, const Tensor& value, parallel::Axes axes, Along wanted);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  ValueObserverScope scope_;
  uint64_t callback_;
};

}  // namespace tandem::layers
