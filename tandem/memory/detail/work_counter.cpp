#include "tandem/memory/detail/work_counter.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <array>
#include <string_view>

namespace tandem::memory::detail {
namespace {

/// Of one element of the result, given the operation's arguments: a multiplication and an addition count two.
using PerElement = double (*)(const at::Tensor& left, const at::Tensor& right);

double of_product(const at::Tensor& left, const at::Tensor&) { return 2.0 * static_cast<double>(left.size(-1)); }

double of_convolution(const at::Tensor&, const at::Tensor& weight) {
  return 2.0 * static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0));
}

struct Product {
  std::string_view name;
  size_t left;  // place of its factors among the arguments
  PerElement per_element;
};

constexpr std::array<Product, 5> kProducts = {{{"aten::mm", 0, of_product},
                                               {"aten::bmm", 0, of_product},
                                               {"aten::addmm", 1, of_product},
                                               {"aten::baddbmm", 1, of_product},
                                               {"aten::convolution", 0, of_convolution}}};

}  // namespace

void WorkCounter::run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& schema = operation.schema();
  const auto* product = std::ranges::find(kProducts, std::string_view(schema.name()), &Product::name);
  double per_element = 0;
  if (product != kProducts.end()) {
    const auto arguments = torch::jit::last(*stack, schema.arguments().size());
    per_element = product->per_element(arguments[product->left].toTensor(), arguments[product->left + 1].toTensor());
  }
  call(operation, keys, stack);
  if (per_element > 0) operations_ += per_element * static_cast<double>(stack->back().toTensor().numel());
}

double nominal_seconds(double operations, double bytes) {
  constexpr double kOperationsPerSecond = 5e10, kBytesPerSecond = 4e9;  // a core with AVX-512, and its memory
  return operations / kOperationsPerSecond + bytes / kBytesPerSecond;
}

}  // namespace tandem::memory::detail
