#include "tandem/train/loss_scale.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "tandem/base/error.h"

namespace tandem::train {
namespace {

constexpr double kGrowth = 2, kBackoff = 0.5;
constexpr double kLeast = 1.0 / 16384;
constexpr double kMost = std::numeric_limits<float>::max();  // backward starts in float32
constexpr const char *kScale = "loss_scale", *kGoodSteps = "loss_scale_good_steps", *kLeftOut = "loss_scale_left_out";

}  // namespace

LossScale::LossScale(const LossScaleOptions& options) : options_(options), scale_(options.scale) {
  if (!(scale_ > 0 && scale_ <= kMost)) {
    throw SettingsError("loss_scale is " + std::to_string(scale_) + ", wanted a number above 0 that float32 holds");
  }
  if (options.growth_interval < 1) {
    throw SettingsError("growth interval of the loss scale is " + std::to_string(options.growth_interval) +
                        ", wanted 1 step or more");
  }
}

void LossScale::unscale(const std::vector<Parameter>& parameters) const {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters) {
    const auto& gradient = parameter.tensor.grad();
    if (gradient.defined()) (gradient.is_sparse() ? gradient._values() : gradient).mul_(1 / scale_);
  }
}

void LossScale::count_good_step() {
  if (!options_.is_dynamic || ++good_steps_ < options_.growth_interval) return;
  good_steps_ = 0;
  if (scale_ * kGrowth <= kMost) scale_ *= kGrowth;
}

bool LossScale::leave_out() {
  if (!options_.is_dynamic || scale_ * kBackoff < kLeast) return false;
  scale_ *= kBackoff;
  good_steps_ = 0;
  ++left_out_;
  return true;
}

storage::Fields LossScale::numbers() const {
  return {{kScale, scale_}, {kGoodSteps, good_steps_}, {kLeftOut, left_out_}};
}

void LossScale::set_numbers(const storage::Fields& numbers) {
  if (!options_.is_dynamic || storage::find_value(numbers, kScale) == nullptr) return;
  scale_ = storage::number(numbers, kScale);
  good_steps_ = storage::whole_number(numbers, kGoodSteps);
  left_out_ = storage::whole_number(numbers, kLeftOut);
}

}  // namespace tandem::train
