#include "tandem/parallel/hook/power_sum.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/rng.h"
#include "tandem/comm/collectives.h"

namespace tandem::parallel {
namespace {

constexpr uint64_t kSeed = 0x706f776572;  // the same on all ranks
constexpr double kSmallest = 1e-30;       // norm of a column that is more than rounding

/// A parameter whose gradient travels as two factors.
struct Matrix {
  int64_t rows = 0, columns = 0;
  uint64_t stream = 0;
  Tensor error;  // [rows, columns], between steps; the matrix itself in a step
  Tensor right;  // [columns, r]: Q

  void start_anew() const {
    error.zero_();
    draw();
  }
  void draw() const {
    const auto drawn = at::empty(right.sizes(), at::kDouble);
    fill_normal_(drawn, 1.0, kSeed, stream);
    right.copy_(drawn);
  }
};

/// Gram and Schmidt, column by column. A column that depends on those before it becomes zero.
void orthonormalize(const Tensor& matrix) {
  for (int64_t i = 0; i < matrix.size(1); ++i) {
    const auto column = matrix.narrow(1, i, 1);
    const double norm = column.norm().item<double>();
    column.mul_(norm < kSmallest ? 0.0 : 1 / norm);  // NaN stays NaN
    const auto rest = matrix.narrow(1, i + 1, matrix.size(1) - i - 1);
    if (rest.size(1) > 0) rest.addmm_(column, column.t().mm(rest), 1, -1);
  }
}

/// Consecutive pieces of a tensor of one dim.
class Pieces {
 public:
  explicit Pieces(Tensor flat) : flat_(std::move(flat)) {}
  Tensor take(int64_t count) { return flat_.narrow(0, std::exchange(taken_, taken_ + count), count); }
  Tensor taken() const { return flat_.narrow(0, 0, taken_); }

 private:
  const Tensor flat_;
  int64_t taken_ = 0;
};

class PowerSum : public GradientHook {
 public:
  PowerSum(const std::vector<Tensor>& parameters, const GradientHookOptions& options) {
    const auto like = parameters[0].options().requires_grad(false);
    int64_t left = 0, right = 0;
    for (const auto& parameter : parameters) {
      TORCH_CHECK_VALUE(parameter.scalar_type() == parameters[0].scalar_type(), "powersgd: a parameter is ",
                        parameter.scalar_type(), " and another ", parameters[0].scalar_type(),
                        ", wanted one type for all");
      auto& matrix = matrices_.emplace_back();
      matrix.rows = parameter.dim() > 0 ? parameter.size(0) : 1;
      matrix.columns = parameter.numel() / std::max<int64_t>(1, matrix.rows);
      matrix.stream = matrices_.size();
      const int64_t rank = options.rank;
      if (parameter.dim() < 2 || 2 * (matrix.rows + matrix.columns) * rank >= matrix.rows * matrix.columns) {
        left += parameter.numel();
        continue;
      }
      matrix.error = at::zeros({matrix.rows, matrix.columns}, like);
      matrix.right = at::empty({matrix.columns, rank}, like);
      matrix.draw();
      left += matrix.rows * rank;
      right += matrix.columns * rank;
    }
    left_ = at::empty({left}, like);
    right_ = at::empty({right}, like);
  }

  bool reads_members() const override { return true; }

  void sum(const GradientBucket& bucket, comm::ProcessGroup& group) override {
    Pieces left(left_), right(right_);
    std::vector<Tensor> sent;  // of each member: P, or the gradient
    for (const auto& member : bucket.members) sent.push_back(multiply(member, left));
    comm::all_reduce_(left.taken(), group, comm::Reduce::sum, bucket.where);
    std::vector<Tensor> factors;  // of each member: Q, or undefined
    for (size_t i = 0; i < sent.size(); ++i) factors.push_back(multiply_back(bucket.members[i], sent[i], right));
    if (right.taken().numel() > 0) comm::all_reduce_(right.taken(), group, comm::Reduce::sum, bucket.where);
    for (size_t i = 0; i < sent.size(); ++i) {
      if (factors[i].defined()) restore(bucket.members[i], sent[i], factors[i], group.size());
    }
  }

 private:
  /// The gradient's memory as rows and columns.
  static Tensor rows_of(const GradientBucket::Member& member, const Matrix& matrix) {
    return member.gradient.as_strided({matrix.rows, matrix.columns}, {matrix.columns, 1});
  }

  Tensor multiply(const GradientBucket::Member& member, Pieces& left) const {
    const auto& matrix = matrices_[member.parameter];
    if (!matrix.error.defined()) {
      const auto piece = left.take(member.gradient.numel()).view(member.gradient.sizes());
      return piece.copy_(member.gradient);
    }
    matrix.error.add_(rows_of(member, matrix));
    auto product = left.take(matrix.rows * matrix.right.size(1)).view({matrix.rows, -1});
    return at::mm_out(product, matrix.error, matrix.right);
  }

  Tensor multiply_back(const GradientBucket::Member& member, const Tensor& sent, Pieces& right) const {
    const auto& matrix = matrices_[member.parameter];
    if (!matrix.error.defined()) {
      member.gradient.copy_(sent);
      return {};
    }
    orthonormalize(sent);
    auto product = right.take(matrix.right.numel()).view(matrix.right.sizes());
    return at::mm_out(product, matrix.error.t(), sent);
  }

  void restore(const GradientBucket::Member& member, const Tensor& left, const Tensor& right, int ranks) const {
    const auto& matrix = matrices_[member.parameter];
    auto gradient = rows_of(member, matrix);
    at::mm_out(gradient, left, right.t());
    const double norm = right.norm().item<double>();
    if (!std::isfinite(norm)) return matrix.start_anew();
    matrix.error.add_(gradient, -1.0 / ranks);
    if (norm < kSmallest) return matrix.draw();  // a Q of zeros would stay zero
    matrix.right.copy_(right).div_(norm);
  }

  std::vector<Matrix> matrices_;  // one a parameter
  Tensor left_, right_;           // what travels
};

}  // namespace

std::unique_ptr<GradientHook> make_power_sum(const std::vector<Tensor>& parameters,
                                             const GradientHookOptions& options) {
  return std::make_unique<PowerSum>(parameters, options);
}

}  // namespace tandem::parallel
