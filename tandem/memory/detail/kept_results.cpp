#include "tandem/memory/detail/kept_results.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "tandem/base/context.h"

namespace tandem::memory::detail {
namespace {

bool is_random(const c10::OperatorHandle& operation) { return operation.hasTag(at::Tag::nondeterministic_seeded); }

/// True if its results are new tensors that depend on its arguments alone.
bool is_function(const c10::OperatorHandle& operation) {
  const auto& schema = operation.schema();
  const auto has_alias = [](const c10::Argument& argument) { return argument.alias_info() != nullptr; };
  const auto is_tensor = [](const c10::Argument& result) { return result.type()->kind() == c10::TypeKind::TensorType; };
  return !is_random(operation) && std::ranges::none_of(schema.arguments(), has_alias) &&
         std::ranges::none_of(schema.returns(), has_alias) && std::ranges::all_of(schema.returns(), is_tensor);
}

bool draws_from_default(const c10::OperatorHandle& operation, const torch::jit::Stack& stack) {
  if (!is_random(operation)) return false;
  const auto& arguments = operation.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (stack[stack.size() - arguments.size() + i].isGenerator()) return false;
  }
  return true;
}

}  // namespace

void KeepingSink::run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const int64_t place = place_++;
  const auto& name = operation.schema().name();
  const bool is_wanted = keep_(name) && is_function(operation);
  call(operation, keys, stack);
  if (!is_wanted) return;
  auto& kept = kept_.operations[place];
  kept.name = name;
  const size_t count = operation.schema().returns().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    const auto& result = (*stack)[i].toTensor();
    if (!result.defined()) {
      kept_.operations.erase(place);
      return;
    }
    kept.results.push_back({alias_of(result), TensorTrace(result, ValueCheck::none)});
  }
}

void ReplayingSink::run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  TORCH_CHECK(!options_.is_restricted || !draws_from_default(operation, *stack), options_.where,
              operation.schema().name(), " draws from the process's default generator, wanted one of rank ",
              current_context().rank, ": pass a generator, and name it in RecomputeOptions::generators");
  const auto found = kept_.operations.find(place_++);
  if (found == kept_.operations.end()) return call(operation, keys, stack);
  take(operation, found->second, stack);
  if (options_.gives_away) kept_.operations.erase(found);
}

void ReplayingSink::take(const c10::OperatorHandle& operation, KeptResults::Operation& from,
                         torch::jit::Stack* stack) const {
  const auto& name = operation.schema().name();
  TORCH_CHECK(name == from.name, options_.where, "operation ", place_, " is ", name,
              " when forward runs again, wanted ", from.name, ": forward must do the same each time");
  for (const auto& [tensor, trace] : from.results) {
    TORCH_CHECK(!trace.is_changed(), options_.where, "the kept result of ", name, " (", trace.text(), ") is at ",
                trace.versions(),
                ": it was changed in place; do not keep it, or use an operation that is not in place");
  }
  stack->resize(stack->size() - operation.schema().arguments().size());
  for (const auto& result : from.results) stack->emplace_back(alias_of(result.tensor));
}

}  // namespace tandem::memory::detail
