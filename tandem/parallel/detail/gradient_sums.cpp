#include "tandem/parallel/detail/gradient_sums.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <limits>

#include "tandem/base/context.h"
#include "tandem/comm/wire_bytes.h"

namespace tandem::parallel::detail {
namespace {

flight::CallInfo info_of(const Tensor& bucket, flight::Where where) {
  flight::CallInfo call;
  call.operation = "all_reduce";
  call.shape = bucket.sizes().vec();
  call.type = c10::toString(bucket.scalar_type());
  call.detail = "gradients";
  call.where = where;
  return call;
}

/// The element that marks a spoilt bucket: it is NaN, and so is any sum with it.
Tensor mark_of(const Tensor& bucket) { return bucket.narrow(0, 0, std::min<int64_t>(1, bucket.numel())); }

}  // namespace

GradientSums::Future GradientSums::start(const Tensor& bucket) {
  const PhaseScope phase(Phase::backward);
  const auto call = info_of(bucket, where_);
  const comm::WireBytes wire{group_.rank(), group_.size()};
  const auto number = group_.begin(call, wire.all_reduce(bucket.numel(), bucket.element_size()));
  Future sent;
  try {
    const flight::CallScope scope(&call);
    std::vector<Tensor> tensors = {bucket};
    sent = group_.backend(bucket.device().type()).allreduce(tensors)->getFuture();
  } catch (const std::exception& error) {
    group_.log()->fail(number, call, error);
  }
  // This object may be gone when the sum ends: an exception does not wait for sums.
  auto done = sent->then(
      [log = group_.log(), call, number](c10::ivalue::Future& future) {
        try {
          auto value = future.value();
          log->end(number);
          return value;
        } catch (const std::exception& error) {
          log->fail(number, call, error);
        }
      },
      sent->elementType());
  buckets_.push_back(bucket);
  futures_.push_back(done);
  return done;
}

void GradientSums::reset(flight::Where where) {
  where_ = where;
  buckets_.clear();
  futures_.clear();
}

void GradientSums::start_spoilt(const Tensor& bucket) {
  const at::NoGradGuard no_grad;
  mark_of(bucket).fill_(std::numeric_limits<double>::quiet_NaN());
  start(bucket);
}

bool GradientSums::wait_for_spoilt() {
  bool is_spoilt = false;
  for (size_t i = 0; i < futures_.size(); ++i) {
    futures_[i]->waitAndThrow();
    is_spoilt |= mark_of(buckets_[i]).isnan().any().item<bool>();
  }
  return is_spoilt;
}

}  // namespace tandem::parallel::detail
