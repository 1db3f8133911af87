#pragma once

namespace tandem::classifier {

/// What the target's score becomes where factor * theta + angle leaves [0, pi], in which the cosine falls.
enum class Beyond {
  extend,  // goes on falling: (-1)^k cos(phi) - 2k, k = floor(phi / pi); no jump in value or slope (SphereFace)
  cosine,  // nothing is done: the cosine rises again (InsightFace today)
  linear,  // cos(theta) - angle * sin(angle), for factor 1: jumps at the switch (InsightFace before)
  easy,    // the margin holds only where cos(theta) > 0
  clamp,   // phi stays at pi, with slope 0 where the gradient is exact (OpenSphere)
};

/// exact: the derivative of the value. detached: the margin counts as a constant, slope 1 (InsightFace's ArcFace).
enum class TargetGradient { exact, detached };

/// The target's cosine c = cos(theta) becomes g(c) = (softening * c + cos(factor * theta + angle) - cosine) /
/// (1 + softening).
struct Margin {
  double factor = 1.0;     // m1: SphereFace, L-softmax
  double angle = 0.0;      // m2, radians: ArcFace
  double cosine = 0.0;     // m3: CosFace
  double softening = 0.0;  // lambda of SphereFace and L-softmax
  Beyond beyond = Beyond::extend;
  TargetGradient gradient = TargetGradient::exact;

  bool is_none() const { return factor == 1.0 && angle == 0.0 && cosine == 0.0; }
};

struct MarginValue {
  double value, slope;  // g(c), dg/dc
};

/// At `cosine`, which is clamped to [-1, 1]. The slope is finite everywhere: sin(theta) counts as 1e-6 or more.
MarginValue apply_margin(const Margin& margin, double cosine);

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
