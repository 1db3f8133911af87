#include "tandem/parallel/gradient_hook.h"

#include <algorithm>
#include <array>

#include "tandem/parallel/hook/compressed_sum.h"
#include "tandem/parallel/hook/plain_sum.h"
#include "tandem/parallel/hook/power_sum.h"

namespace tandem::parallel {
namespace {

constexpr std::array<GradientHookKind, 5> kHooks = {
    {{.name = "sum", .doc = "gradients travel as they are", .make = make_plain_sum},
     {.name = "fp16",
      .doc = "gradients travel as float16, half the bytes, infinite above 65504",
      .make = make_half_sum},
     {.name = "bf16",
      .doc = "gradients travel as bfloat16, half the bytes, with 8 bits of precision",
      .make = make_bfloat16_sum},
     {.name = "powersgd",
      .doc = "matrices travel as products of two narrow ones, and what that leaves out is added to the next gradient",
      .make = make_power_sum,
      .has_rank = true,
      .keeps_errors = true},
     {.name = "post-local-sgd",
      .doc = "as sum until step ddp.local_start; from then on each rank trains on its own images, and models become "
             "their mean every ddp.local_every steps",
      .make = make_plain_sum,
      .goes_apart = true}}};

}  // namespace

std::span<const GradientHookKind> gradient_hooks() { return kHooks; }

const GradientHookKind& gradient_hook(std::string_view name) {
  const auto found = std::ranges::find(kHooks, name, &GradientHookKind::name);
  std::string names;
  for (const auto& hook : kHooks) names += (names.empty() ? "" : ", ") + std::string(hook.name);
  TORCH_CHECK_VALUE(found != kHooks.end(), "gradient hook is '", name, "', wanted one of ", names);
  return *found;
}

}  // namespace tandem::parallel
