#pragma once
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::flight {

/// A place in the sources: who called.
using Where = std::source_location;

/// One communication call as its rank sees it.
struct CallInfo {
  const char* operation = "";  // "all_reduce"; a literal
  std::vector<int64_t> shape;  // of this rank's input
  const char* type = "";       // "Float"; a literal
  int peer = -1;               // root, destination or source, in the group; -1: none
  const char* detail = "";     // "sum"; a literal
  int dim = -1;                // along which the ranks' sizes may differ; -1: nowhere
  std::string split;           // "dim 1, sizes 3, 2" as the caller named them; only where calls are compared
  bool requires_grad = false;
  Where where = Where::current();

  /// "all_reduce of Float [2, 3] (sum) at head.cpp:41".
  std::string describe() const;

  /// "head.cpp:41".
  std::string place() const;
};

/// "Float [2, 3]".
std::string tensor_words(std::string_view type, std::span<const int64_t> shape);

/// What the calling thread is in the middle of; null: nothing that a ProcessGroup knows of.
const CallInfo* current_call();

/// Sets it until the scope's end.
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
