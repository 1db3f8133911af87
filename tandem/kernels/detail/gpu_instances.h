#pragma once
#include "tandem/kernels/gpu_kernels.h"

// The instances of gpu_kernels.h that its sources compile, inside namespace tandem::kernels::gpu. S: the type in
// memory, T: that of the arithmetic.

#define TANDEM_GPU_ACTIVATION(S)                              \
  template int activate(Curve, const S*, int64_t, S*, void*); \
  template int differentiate(Curve, const S*, const S*, int64_t, S*, void*);

#define TANDEM_GPU_ABN(S)                                                                                          \
  template int abn_forward(const AbnForward<AbnNumber<S>>&, int64_t, int64_t, S*, uint8_t*, void*);                \
  template int abn_gradient_sums(const AbnBackward<S>&, int64_t, int64_t, const AbnUnfolded<S>&, double*, double*, \
                                 void*, void*);                                                                    \
  template int abn_gradient_apply(const AbnBackward<S>&, const AbnApply<AbnNumber<S>>&, int64_t, int64_t, S*, void*);

#define TANDEM_GPU_ABN_CHANNELS(T)                                   \
  template int for_each(const AbnScaleBody<T>&, int64_t, void*);     \
  template int for_each(const AbnParameterBody<T>&, int64_t, void*); \
  template int for_each(const AbnShiftBody<T>&, int64_t, void*);

#define TANDEM_GPU_BLOCKS(T, S)                                                                        \
  template int add_block(const Block<T, S>&, const RunningRows<T>&, void*, void*);                     \
  template int differentiate_block(const Block<T, S>&, const ShareRows<T>&, T, T*, T*, void*, void*);  \
  template int exponentiate_block(const Block<T, S>&, int32_t*, const ExponentRows<T>&, void*, void*); \
  template int for_each(const ExponentiateAgainBody<T, S>&, int64_t, void*);                           \
  template int project_along(const S*, const T*, const T*, int64_t, int64_t, T*, void*);               \
  template int add_along(const S*, const T*, const T*, int64_t, int64_t, T*, void*);

#define TANDEM_GPU_SCORE_LINES(T)                                 \
  template int64_t score_scratch<T>(int64_t, int64_t);            \
  template int for_each(const TileScaleBody<T>&, int64_t, void*); \
  template int inverse_lengths(const T*, int64_t, int64_t, T*, void*);

#define TANDEM_GPU_TARGETS(T, S)                                              \
  template int for_each(const ScoreTargetBody<T, S>&, int64_t, void*);        \
  template int for_each(const PutTargetBody<T, S>&, int64_t, void*);          \
  template int for_each(const ClearTargetBody<T, S>&, int64_t, void*);        \
  template int for_each(const ReadTargetGradientBody<T, S>&, int64_t, void*); \
  template int for_each(const PutTargetGradientBody<T, S>&, int64_t, void*);  \
  template int for_each(const AddToWeightBody<T, S>&, int64_t, void*);

#define TANDEM_GPU_TARGET_LINES(T)                                     \
  template int for_each(const AddTargetBody<T>&, int64_t, void*);      \
  template int for_each(const TargetLineBody<T>&, int64_t, void*);     \
  template int for_each(const TargetGradientBody<T>&, int64_t, void*); \
  template int for_each(const AddToFeaturesBody<T>&, int64_t, void*);

// All of a subject, and of all.
#define TANDEM_GPU_ALL_ACTIVATIONS \
  TANDEM_GPU_ACTIVATION(float)     \
  TANDEM_GPU_ACTIVATION(double)    \
  TANDEM_GPU_ACTIVATION(uint16_t)

#define TANDEM_GPU_ALL_ABNS      \
  TANDEM_GPU_ABN(float)          \
  TANDEM_GPU_ABN(double)         \
  TANDEM_GPU_ABN(uint16_t)       \
  TANDEM_GPU_ABN_CHANNELS(float) \
  TANDEM_GPU_ABN_CHANNELS(double)

#define TANDEM_GPU_ALL_SCORES        \
  TANDEM_GPU_BLOCKS(float, float)    \
  TANDEM_GPU_BLOCKS(double, double)  \
  TANDEM_GPU_BLOCKS(float, uint16_t) \
  TANDEM_GPU_SCORE_LINES(float)      \
  TANDEM_GPU_SCORE_LINES(double)

#define TANDEM_GPU_ALL_TARGETS        \
  TANDEM_GPU_TARGETS(float, float)    \
  TANDEM_GPU_TARGETS(double, double)  \
  TANDEM_GPU_TARGETS(float, uint16_t) \
  TANDEM_GPU_TARGET_LINES(float)      \
  TANDEM_GPU_TARGET_LINES(double)

#define TANDEM_GPU_ALL       \
  TANDEM_GPU_ALL_ACTIVATIONS \
  TANDEM_GPU_ALL_ABNS        \
  TANDEM_GPU_ALL_SCORES      \
  TANDEM_GPU_ALL_TARGETS
