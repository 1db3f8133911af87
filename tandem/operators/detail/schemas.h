#pragma once

/// What Python calls as torch.ops.tandem.NAME. Tensors of the CPU; a wrong argument is a ValueError, a TypeError or an
/// IndexError of one line.
///
/// Each operator has three kernels:
///
///   Autograd  plain tensors ── Tandem's own graph node, which may write over the incoming gradient
///             tensors that are traced ── a torch::autograd::Function, whose backward calls *_backward
///   CPU       the values
///   Meta      shapes, also symbolic ones: for torch.compile, torch.export and FakeTensorMode
namespace tandem::operators::detail {

/// x / (1 + e^-x), of any shape and floating type. Keeps x alone; its gradient is written over the incoming one where
/// nothing else holds that (memory/activation.h). Can be differentiated twice.
inline constexpr const char* kSwish = "swish(Tensor x) -> Tensor";
inline constexpr const char* kSwishBackward = "swish_backward(Tensor gradient, Tensor x) -> Tensor";

/// Batch normalisation and an invertible activation, which keep their result alone (memory/inplace_abn.h).
///
///   x             [N, C] or [N, C, H, W], float32, float64 or bfloat16
///   the others    [C], contiguous, of x's type; float32 where x is bfloat16
///   activation    leaky_relu (slope 0.01), elu, swish or identity
///   training      normalises by the batch, of 2 numbers a channel or more, and moves the running statistics
///   returns       of x's shape and type, [N, C, H, W] in channels last
///   autocast      weight and bias in float32; x as it is, but float16 in float32
///
/// x is not overwritten, unlike in memory::inplace_abn(): an operator that returns what it has written over cannot be
/// functionalised, which torch.compile and opcheck need. The memory kept from forward to backward is the same, because
/// nothing here keeps x; while the operator runs, there is one tensor more. Has no second derivative.
inline constexpr const char* kAbn =
    "abn(Tensor x, Tensor weight, Tensor bias, Tensor(a!) running_mean, Tensor(b!) running_var, "
    "str activation=\"leaky_relu\", bool training=True, float momentum=0.1, float epsilon=1e-05) -> Tensor";
/// The same with what backward reads: z, numbers [3, C], and for swish a bit a number, else [0].
inline constexpr const char* kAbnForward =
    "abn_forward(Tensor x, Tensor weight, Tensor bias, Tensor(a!) running_mean, Tensor(b!) running_var, "
    "str activation, bool training, float momentum, float epsilon) -> (Tensor, Tensor, Tensor)";
inline constexpr const char* kAbnBackward =
    "abn_backward(Tensor gradient, Tensor z, Tensor numbers, Tensor sides, str activation, bool training) -> "
    "(Tensor, Tensor, Tensor)";

/// Mean cross entropy of a softmax over scale * cos(x, w), in which the target's angle theta counts as
/// cos(factor * theta + angle) - cosine: CosFace, ArcFace and their combination (classifier/scoring.h, and there beyond
/// pi: Beyond::extend). The scores are computed block by block; there is never a [N, C] matrix.
///
///   features  [N, D]  float32 or float64; neither they nor the weight need be normalised
///   weight    [C, D]  a row a class, of the same type
///   targets   [N]     int64 0..C-1; -1 leaves the row out
///   returns   []      nats per counted row
///   autocast          features and weight in float32
///
/// Traced, backward computes the products of forward again. Has no second derivative.
inline constexpr const char* kMarginSoftmax =
    "margin_softmax(Tensor features, Tensor weight, Tensor targets, float scale=64., float factor=1., "
    "float angle=0., float cosine=0.) -> Tensor";
inline constexpr const char* kMarginSoftmaxBackward =
    "margin_softmax_backward(Tensor gradient, Tensor features, Tensor weight, Tensor targets, float scale, "
    "float factor, float angle, float cosine) -> (Tensor, Tensor)";

}  // namespace tandem::operators::detail
