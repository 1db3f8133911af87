#pragma once
#include <initializer_list>

#include "tandem/base/tensor.h"

namespace tandem {

/// What a value is on ranks that work on it together. The gradient of an invariant value is invariant, that of a
/// varying one varies; those of replicated and partial values are each other's.
enum class Along : uint8_t {
  invariant,   // the same on all ranks, and so is its gradient: the loss counts once, whatever the number of ranks
  varying,     // each rank has a part of its own, and the gradient of that part
  replicated,  // the same on all ranks, each of which works out a part with it: its gradient is a sum over the ranks
  partial      // each rank has a term of a sum
};

/// Is told, while it is set on a thread, of values that come from no operator of torch.
class ValueObserver {
 public:
  virtual ~ValueObserver() = default;

  /// This rank alone has worked out `result` from `inputs`; undefined ones count as none.
  virtual void computed(const char* operation, const Tensor& result, std::initializer_list<Tensor> inputs) = 0;

  /// The ranks of a group, whose address it is, have exchanged values.
  virtual void exchanged(const char* operation, const void* group, const Tensor& value, Along takes,
                         const Tensor& result, Along gives) = 0;

  /// This rank has worked out a term of `result`, which is to be summed over the group.
  virtual void is_term(const Tensor& result, const void* group) = 0;

  /// Random numbers are drawn for `value` by the place in a whole that the ranks of `group` divide; null: which it is
  /// itself.
  virtual void drawn(const char* operation, const Tensor& value, const void* group) = 0;
};

/// Of this thread; null: none.
ValueObserver* value_observer();

/// Sets it while the scope lives.
class ValueObserverScope {
 public:
  explicit ValueObserverScope(ValueObserver* observer);
  ~ValueObserverScope();
  ValueObserverScope(const ValueObserverScope&) = delete;
  ValueObserverScope& operator=(const ValueObserverScope&) = delete;

 private:
  ValueObserver* before_;
};

}  // namespace tandem
