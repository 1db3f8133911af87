#include "tandem/base/device_kernels.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace tandem {
namespace {

struct Row {
  bool is_of_gpu;
  Kernels kernels;
  std::array<c10::ScalarType, 3> types;  // `Undefined`: no more
};

constexpr auto kFloat = c10::ScalarType::Float, kDouble = c10::ScalarType::Double,
               kBFloat16 = c10::ScalarType::BFloat16, kNone = c10::ScalarType::Undefined;

constexpr std::array<Row, 10> kRows = {{
    {false, Kernels::activation, {kFloat, kDouble, kBFloat16}},
    {false, Kernels::inplace_abn, {kFloat, kDouble, kBFloat16}},
    {false, Kernels::running_statistics, {kFloat, kDouble, kNone}},
    {false, Kernels::batch_norm, {kFloat, kBFloat16, kNone}},
    {false, Kernels::scores, {kFloat, kDouble, kBFloat16}},
    {false, Kernels::codes, {kFloat, kNone, kNone}},
    {true, Kernels::activation, {kFloat, kDouble, kBFloat16}},
    {true, Kernels::inplace_abn, {kFloat, kDouble, kBFloat16}},
    {true, Kernels::scores, {kFloat, kDouble, kBFloat16}},
    {true, Kernels::codes, {kFloat, kNone, kNone}},
}};

#ifdef TANDEM_CUDA
constexpr auto kBuiltFor = c10::DeviceType::CUDA;
#else
constexpr auto kBuiltFor = c10::DeviceType::CPU;
#endif

std::atomic<c10::DeviceType> gpu{kBuiltFor};
std::atomic<uint32_t> left_to_operators = 0;  // a bit a kind

uint32_t bit_of(Kernels kernels) { return 1U << static_cast<uint32_t>(kernels); }

}  // namespace

bool have_kernels(Kernels kernels, const Tensor& x) {
  if ((left_to_operators & bit_of(kernels)) != 0) return false;
  const bool is_on_gpu = !x.is_cpu();
  if (is_on_gpu && x.device().type() != gpu.load(std::memory_order_relaxed)) return false;
  const auto type = x.scalar_type();
  return std::ranges::any_of(kRows, [&](const Row& row) {
    return row.is_of_gpu == is_on_gpu && row.kernels == kernels &&
           std::ranges::find(row.types, type) != row.types.end();
  });
}

void leave_to_operators(Kernels kernels, bool on) {
  on ? left_to_operators.fetch_or(bit_of(kernels)) : left_to_operators.fetch_and(~bit_of(kernels));
}

bool have_gpu_kernels(c10::DeviceType type) { return type != c10::DeviceType::CPU && type == gpu.load(); }

void set_gpu_kernels(c10::DeviceType type) { gpu = type; }

}  // namespace tandem
