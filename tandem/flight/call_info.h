#pragma once
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::flight {

/// The place in the sources from which a call was made.
using Where = std::source_location;

/// A communication call, as its rank sees it.
struct CallInfo {
  const char* operation = "";  // "all_reduce"; a literal
  std::vector<int64_t> shape;  // of this rank's input
  const char* type = "";       // "Float"; a literal
  const char* device = "";     // "cuda"; a literal; empty: the CPU
  int peer = -1;               // root, destination or source, in the group; -1: none
  const char* detail = "";     // "sum"; a literal
  int dim = -1;                // dim in which sizes may differ between ranks; -1: none
  std::string split;           // "dim 1, sizes 3, 2" as the caller named them; set only if calls are compared
  bool requires_grad = false;
  Where where = Where::current();

  /// "all_reduce of Float [2, 3] (sum) at head.cpp:41".
  std::string describe() const;

  /// "head.cpp:41".
  std::string place() const;
};

/// "Float [2, 3]".
std::string tensor_words(std::string_view type, std::span<const int64_t> shape);

/// The communication call that the calling thread is in; null if it is in no call of a ProcessGroup.
const CallInfo* current_call();

/// Sets the calling thread's current_call() while the object lives; `call` must outlive it.
class CallScope {
 public:
  explicit CallScope(const CallInfo* call);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  const CallInfo* before_;
};

}  // namespace tandem::flight
