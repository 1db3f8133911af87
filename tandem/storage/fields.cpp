#include "tandem/storage/fields.h"

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::storage {
namespace {

std::string describe(const Value* value) {
  if (value == nullptr) return "missing";
  if (const auto* flag = std::get_if<bool>(value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(value)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(value)) return std::to_string(*real);
  return quote(std::get<std::string>(*value));
}

[[noreturn]] void fail(std::string_view name, const Value* found, const char* wanted) {
  throw DataError(std::string(name) + " is " + describe(found) + ", wanted " + wanted);
}

}  // namespace

const Value* find_value(const Fields& fields, std::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

int64_t whole_number(const Fields& fields, std::string_view name) {
  const auto* value = find_value(fields, name);
  if (value == nullptr || !std::holds_alternative<int64_t>(*value)) fail(name, value, "a whole number");
  return std::get<int64_t>(*value);
}

double number(const Fields& fields, std::string_view name) {
  const auto* value = find_value(fields, name);
  if (value != nullptr && std::holds_alternative<int64_t>(*value)) {
    return static_cast<double>(std::get<int64_t>(*value));
  }
  if (value == nullptr || !std::holds_alternative<double>(*value)) fail(name, value, "a number");
  return std::get<double>(*value);
}

const std::string& text(const Fields& fields, std::string_view name) {
  const auto* value = find_value(fields, name);
  if (value == nullptr || !std::holds_alternative<std::string>(*value)) fail(name, value, "a text");
  return std::get<std::string>(*value);
}

}  // namespace tandem::storage
