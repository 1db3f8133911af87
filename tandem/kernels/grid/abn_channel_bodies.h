#pragma once
#include "tandem/kernels/grid/body.h"

/// The arithmetic of single channels between the passes of batch normalisation with an invertible activation. T is
/// float or double; what is added over ranks is double. Index c: channel c. Every array has a number a channel.
namespace tandem::kernels {

/// g, bias and 1 / deviation of the channels; backward needs them again.
struct AbnChannels {
  double *g, *bias, *inverse;
};

/// g is the weight, at least `least` in size, so that y can be divided by it. The forward pass multiplies by `scale`
/// and adds `offset`.
template <class T>
struct AbnScaleBody {
  const T *weight, *bias, *mean, *inverse;
  double least;
  AbnChannels to;
  T *scale, *offset;

  TANDEM_BODY void operator()(int64_t c) const {
    const double w = weight[c], factor = std::copysign(larger(std::fabs(w), least), w);
    to.g[c] = factor;
    to.bias[c] = bias[c];
    to.inverse[c] = inverse[c];
    scale[c] = static_cast<T>(factor * inverse[c]);
    offset[c] = static_cast<T>(bias[c] - mean[c] * (factor * inverse[c]));
  }
};

/// From the sums of dy and of dy (y - centre): the gradients of bias and weight, also as terms to add over ranks.
/// centred: the centre is the bias (form one), else 0.
template <class T>
struct AbnParameterBody {
  AbnChannels of;
  bool centred;
  const double *sum, *product;
  T *weight_gradient, *bias_gradient, *factor;
  double *by_bias, *by_weight;

  TANDEM_BODY void operator()(int64_t c) const {
    by_bias[c] = sum[c];
    by_weight[c] = (centred ? product[c] : product[c] - of.bias[c] * sum[c]) / of.g[c];
    bias_gradient[c] = static_cast<T>(by_bias[c]);
    weight_gradient[c] = static_cast<T>(by_weight[c]);
    factor[c] = static_cast<T>(of.g[c] * of.inverse[c]);
  }
};

/// From these terms, added over all `rows`: how the apply pass makes dx = g r (dy - mean(dy) - xh mean(dy xh)), r = 1 /
/// deviation, of dy and y - centre. rows = 0: dx = g r dy, for running statistics.
template <class T>
struct AbnShiftBody {
  AbnChannels of;
  bool centred;
  double rows;
  const double *by_bias, *by_weight;
  T *slope, *shift;

  TANDEM_BODY void operator()(int64_t c) const {
    const double part = rows > 0 ? of.inverse[c] / rows : 0;
    slope[c] = static_cast<T>(-part * by_weight[c]);
    shift[c] = static_cast<T>(-part * (of.g[c] * by_bias[c] - (centred ? 0 : of.bias[c] * by_weight[c])));
  }
};

}  // namespace tandem::kernels
