#include "tandem/flight/call_info.h"

namespace tandem::flight {
namespace {

thread_local const CallInfo* call_of_thread = nullptr;

}  // namespace

std::string tensor_words(std::string_view type, std::span<const int64_t> shape) {
  std::string text = std::string(type) + " [";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string CallInfo::place() const {
  const std::string path = where.file_name();
  return path.substr(path.rfind('/') + 1) + ":" + std::to_string(where.line());
}

std::string CallInfo::describe() const {
  std::string text = operation, notes = detail;
  if (*type != '\0') text += " of " + tensor_words(type, shape);
  if (*device != '\0') text += std::string(" on ") + device;
  if (peer >= 0) {
    const std::string_view name = operation;
    const auto* word = name == "send" ? "to rank " : name == "recv" ? "from rank " : "root ";
    notes += (notes.empty() ? "" : ", ") + (word + std::to_string(peer));
  }
  if (!notes.empty()) text += " (" + notes + ")";
  return text + " at " + place();
}

const CallInfo* current_call() { return call_of_thread; }

CallScope::CallScope(const CallInfo* call) : before_(call_of_thread) { call_of_thread = call; }

CallScope::~CallScope() { call_of_thread = before_; }

}  // namespace tandem::flight
