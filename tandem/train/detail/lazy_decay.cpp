#include "tandem/train/detail/lazy_decay.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"

namespace tandem::train::detail {
namespace {

constexpr std::array<double, 4> kIdentity = {1, 0, 0, 1};
constexpr int64_t kBytesAtOnce = 512 << 10;  // bytes of rows at a time: copies of them stay in the cache

int64_t row_bytes(const Tensor& matrix) { return matrix.size(1) * static_cast<int64_t>(matrix.element_size()); }

}  // namespace

LazyDecay::LazyDecay(Tensor weight, Tensor momentum, double momentum_factor, double weight_decay, bool nesterov)
    : weight_(std::move(weight)),
      momentum_(std::move(momentum)),
      momentum_factor_(momentum_factor),
      weight_decay_(weight_decay),
      nesterov_(nesterov),
      done_(at::zeros({weight_.size(0)}, weight_.options().dtype(at::kInt).requires_grad(false))),
      since_{kIdentity} {}

LazyDecay::Map LazyDecay::map_of(double learning_rate) const {
  const Map velocity = {0, 0, weight_decay_, momentum_factor_};  // the last two entries give v'
  const double of_gradient = nesterov_ ? weight_decay_ : 0.0, of_velocity = nesterov_ ? momentum_factor_ : 1.0;
  return {1 - learning_rate * (of_gradient + of_velocity * velocity[2]), -learning_rate * of_velocity * velocity[3],
          velocity[2], velocity[3]};
}

void LazyDecay::prepare(const Rows& rows) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::optimizer);
  const int64_t at_once = std::max<int64_t>(1, kBytesAtOnce / std::max<int64_t>(1, row_bytes(weight_)));
  for (int64_t begin = 0; begin < rows.count; begin += at_once) {
    const int64_t count = std::min(at_once, rows.count - begin);
    move({rows.begin + begin, count, rows.ids.defined() ? rows.ids.narrow(0, begin, count) : Tensor()});
  }
  const auto now = static_cast<int64_t>(since_.size());
  if (rows.ids.defined()) {
    done_.index_fill_(0, rows.ids, now);
  } else {
    done_.narrow(0, rows.begin, rows.count).fill_(now);
  }
}

void LazyDecay::move(const Rows& rows) {
  const auto maps = at::from_blob(since_.data(), {static_cast<int64_t>(since_.size()), 4}, at::kDouble)
                        .to(weight_.scalar_type(), /*non_blocking=*/false, /*copy=*/true)
                        .to(weight_.device(), /*non_blocking=*/true);
  // Rows that this step has moved before, one past the last map, stay where they are: the last map is the identity.
  const auto own = maps.index_select(0, rows.of(done_).to(at::kLong).clamp_max_(maps.size(0) - 1));
  const auto factor = [&](int64_t place) { return own.select(1, place).unsqueeze(1); };
  auto weight = rows.of(weight_);
  if (!momentum_.defined()) {
    weight.mul_(factor(0));
    return rows.put_back(weight_, weight);
  }
  auto momentum = rows.of(momentum_);
  const auto moved = (momentum * factor(3)).addcmul_(weight, factor(2));
  weight.mul_(factor(0)).addcmul_(momentum, factor(1));
  momentum.copy_(moved);
  rows.put_back(weight_, weight);
  rows.put_back(momentum_, momentum);
}

void LazyDecay::end_step(double learning_rate) {
  const auto step = map_of(learning_rate);
  for (auto& map : since_) {
    map = {step[0] * map[0] + step[1] * map[2], step[0] * map[1] + step[1] * map[3],
           step[2] * map[0] + step[3] * map[2], step[2] * map[1] + step[3] * map[3]};
  }
  since_.push_back(kIdentity);
  if (static_cast<int64_t>(since_.size()) > kLongest) settle();
}

void LazyDecay::drop_step() { done_.clamp_max_(static_cast<int64_t>(since_.size()) - 1); }

void LazyDecay::settle() {
  prepare({.begin = 0, .count = weight_.size(0)});
  since_ = {kIdentity};
  done_.zero_();
}

}  // namespace tandem::train::detail
