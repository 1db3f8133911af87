#pragma once
#include <cstdint>
#include <vector>

#include "tandem/storage/fields.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

struct LossScaleOptions {
  double scale = 65536;            // at the start
  bool is_dynamic = true;          // it follows what the gradients bear
  int64_t growth_interval = 2000;  // good steps in a row after which the scale doubles
};

/// The factor of a loss whose gradients are worked out in float16, where numbers below 6e-8 are lost and those above
/// 65504 are infinite: backward starts from the factor in place of 1, and unscale() divides the gradients by it.
///
///   step        good good good  bad   good good good      growth_interval = 3
///   scale       8    8    8     16    8    8    8    16   a bad step, whose gradients are not finite, is left out
///
/// The rule and its numbers are those of torch.amp.GradScaler. Below a scale of 1/16384 (fairseq's limit of 1e-4) it is
/// not the scale that makes gradients infinite: there leave_out() refuses.
/// Source: Micikevicius et al. 2018, Mixed Precision Training (arXiv:1710.03740), section 3.2.
class LossScale {
 public:
  /// Throws SettingsError: `loss_scale` that is no finite number above 0, a growth interval below 1.
  explicit LossScale(const LossScaleOptions& options);

  double scale() const { return scale_; }
  int64_t left_out() const { return left_out_; }  // steps, over all runs of the job
  bool is_dynamic() const { return options_.is_dynamic; }

  /// Divides the gradients of the parameters by the scale, in place. Not collective.
  void unscale(const std::vector<Parameter>& parameters) const;

  /// After a step whose gradients are finite on all ranks.
  void count_good_step();

  /// After a step whose gradients are not finite on some rank: halves the scale and returns true. False, and no change,
  /// if the scale is constant or as small as it may be: then the step fails as any other would.
  bool leave_out();

  /// What a checkpoint must hold, and what it held; one that was written without a scale changes nothing.
  storage::Fields numbers() const;
  void set_numbers(const storage::Fields& numbers);

 private:
  LossScaleOptions options_;
  double scale_;
  int64_t good_steps_ = 0;  // since the scale has changed
  int64_t left_out_ = 0;
};

}  // namespace tandem::train
