#pragma once
#include "tandem/kernels/margin.h"

namespace tandem::classifier {

using kernels::apply_margin;
using kernels::Beyond;
using kernels::Margin;
using kernels::MarginValue;
using kernels::TargetGradient;

/// How the score of a class is made from a feature x and the class's weight w: scale * w.x, with w and x divided by
/// their lengths where these are normalised; the target's is scale * |w| * |x| * g(cos), lengths normalised being 1.
struct Scoring {
  bool normalise_features = false, normalise_weight = false;
  double scale = 1.0;
  Margin margin = {};
  double filter = 1.0;     // scores of other classes than the target with a greater cosine count as 0; 1: none
  double smoothing = 0.0;  // label smoothing over all classes of all ranks
  bool has_bias = false;   // the weight's last column, as if each sample had one feature more, of value 1
};

Scoring plain_softmax();
Scoring linear_softmax();  // the same with a bias
Scoring normalised_softmax(double scale);
/// Wang et al. 2018 (arXiv:1801.09414), and as AM-softmax (arXiv:1801.05599).
Scoring cosface(double scale, double margin);
/// Deng et al. 2018 (arXiv:1801.07698); margin in radians.
Scoring arcface(double scale, double margin);
/// ArcFace's general form.
Scoring combined_margin(double scale, double factor, double angle, double cosine);
/// Liu et al. 2017 (arXiv:1704.08063), A-softmax: weights normalised, features not.
Scoring sphereface(double factor, double softening);
/// Liu et al. 2016 (arXiv:1612.02295): nothing normalised.
Scoring large_margin_softmax(double factor, double softening);

/// True for a softmax over inner products: the loss of a model that knows nothing is ln(classes).
bool is_plain_softmax(const Scoring& scoring);

/// Throws c10::ValueError for a scoring that has no meaning: a scale that is not positive, smoothing out of [0, 1), a
/// filter without normalised features and weight, `linear` with a factor that is not 1, and their like.
void check_scoring(const Scoring& scoring);

/// softening of SphereFace and L-softmax in a step: max(least, base * (1 + gamma * step)^-power).
struct Annealing {
  double base = 0.0, gamma = 0.0, power = 1.0, least = 0.0;
  double at(long step) const;
};

}  // namespace tandem::classifier
