#include "tandem/base/device_kernels.h"

#include <algorithm>
#include <array>

namespace tandem {
namespace {

struct Row {
  c10::DeviceType device;
  Kernels kernels;
  std::array<c10::ScalarType, 3> types;  // `Undefined`: no more
};

constexpr auto kFloat = c10::ScalarType::Float, kDouble = c10::ScalarType::Double,
               kBFloat16 = c10::ScalarType::BFloat16, kNone = c10::ScalarType::Undefined;

constexpr std::array<Row, 5> kRows = {{
    {c10::DeviceType::CPU, Kernels::activation, {kFloat, kDouble, kBFloat16}},
    {c10::DeviceType::CPU, Kernels::inplace_abn, {kFloat, kDouble, kBFloat16}},
    {c10::DeviceType::CPU, Kernels::running_statistics, {kFloat, kDouble, kNone}},
    {c10::DeviceType::CPU, Kernels::batch_norm, {kFloat, kBFloat16, kNone}},
    {c10::DeviceType::CPU, Kernels::scores, {kFloat, kDouble, kBFloat16}},
}};

thread_local uint32_t left_to_operators = 0;  // a bit a kind

uint32_t bit_of(Kernels kernels) { return 1U << static_cast<uint32_t>(kernels); }

}  // namespace

bool have_kernels(Kernels kernels, const Tensor& x) {
  if ((left_to_operators & bit_of(kernels)) != 0) return false;
  const auto device = x.device().type();
  const auto type = x.scalar_type();
  return std::ranges::any_of(kRows, [&](const Row& row) {
    return row.device == device && row.kernels == kernels && std::ranges::find(row.types, type) != row.types.end();
  });
}

void leave_to_operators(Kernels kernels, bool on) {
  left_to_operators = on ? left_to_operators | bit_of(kernels) : left_to_operators & ~bit_of(kernels);
}

}  // namespace tandem
