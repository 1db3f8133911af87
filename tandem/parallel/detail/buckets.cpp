#include "tandem/parallel/detail/buckets.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>

#include "tandem/base/context.h"

namespace tandem::parallel::detail {
namespace {

/// Sums each bucket over the ranks. By default the Reducer would divide by the number of ranks first.
class SumHook : public c10d::CommHookInterface {
 public:
  explicit SumHook(GradientSums& sums) : sums_(sums) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override { return sums_.start(bucket); }

  Tensor parseHookResult(const c10::IValue& result) override { return sums_.started().at(result.toInt()); }

 private:
  GradientSums& sums_;
};

/// The gradients of the last layers come first, so the buckets run from the back.
std::vector<std::vector<size_t>> from_the_back(const std::vector<Tensor>& parameters, const BucketOptions& options) {
  const std::vector<size_t> limits = {static_cast<size_t>(options.first_bucket_bytes),
                                      static_cast<size_t>(options.bucket_bytes)};
  const std::vector<Tensor> reversed(parameters.rbegin(), parameters.rend());
  auto [buckets, bucket_limits] = c10d::compute_bucket_assignment_by_size(reversed, limits);
  for (auto& bucket : buckets) {
    for (auto& index : bucket) index = parameters.size() - 1 - index;
  }
  return buckets;
}

template <class Function>
void for_each_gradient(const c10d::GradBucket& bucket, const Function& function) {
  const CategoryScope scope(Category::gradients);
  const auto parameters = bucket.getParameters();
  const auto views = gradient_views(bucket);
  for (size_t i = 0; i < views.size(); ++i) function(parameters[i], views[i]);
}

void fill_from_gradients(const c10d::GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  for_each_gradient(bucket, [](const Tensor& parameter, const Tensor& view) {
    const auto& gradient = parameter.grad();
    if (!gradient.defined()) {
      view.zero_();
    } else if (!gradient.is_alias_of(view)) {
      view.copy_(gradient);
    }
  });
}

}  // namespace

Buckets::Buckets(GradientSums::Parts parts, comm::ProcessGroup& channel, const BucketOptions& options)
    : options_(options), sums_(channel, std::move(parts)) {
  const auto& [parameters, names, hook, before, after] = sums_.parts();
  std::unordered_map<size_t, std::string> name_of;
  for (size_t i = 0; i < names.size(); ++i) name_of[i] = names[i];
  const CategoryScope scope(Category::gradients);
  reducer_ = std::make_unique<c10d::Reducer>(parameters, from_the_back(parameters, options), channel.handle(),
                                             std::vector<bool>(parameters.size(), false), options.bucket_bytes,
                                             /*find_unused_parameters=*/false, options.are_gradients, name_of,
                                             options.first_bucket_bytes, /*skip_all_reduce_unused_params=*/false,
                                             /*use_python_reducer=*/false, std::vector<int64_t>());
  reducer_->register_comm_hook(std::make_unique<SumHook>(sums_));
}

Buckets::~Buckets() = default;

void Buckets::rebuild() {
  sums_.reset({});  // lets go of the buckets that are rebuilt
  const CategoryScope scope(Category::gradients);
  reducer_->rebuild_buckets();
}

void Buckets::prepare(const Tensor& loss) {
  const CategoryScope scope(Category::gradients);
  reducer_->prepare_for_backward({loss});
}

void Buckets::skip(size_t parameter) { reducer_->autograd_hook(parameter); }

void Buckets::start_the_rest() {
  for (const auto& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    if (!sums_.has_started(bucket)) sums_.start_spoilt(bucket);
  }
}

void Buckets::lay_gradients() {
  if (!options_.are_gradients) return;
  const at::NoGradGuard no_grad;
  for (const auto& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    bucket.getBuffer().zero_();
    for_each_gradient(bucket, [](const Tensor& parameter, const Tensor& view) { parameter.mutable_grad() = view; });
  }
}

void Buckets::start_from_gradients() {
  for (const auto& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    if (sums_.has_started(bucket)) continue;
    fill_from_gradients(bucket);
    sums_.start(bucket);
  }
  reducer_->push_rebuilt_params_for_all_indices();  // as the other ranks' backward notes its order
}

void Buckets::start_from_gradients(const std::vector<Tensor>& complete, const std::vector<Tensor>& missing) {
  const auto is_in = [](const std::vector<Tensor>& tensors) {
    return [&](const Tensor& x) { return std::ranges::any_of(tensors, [&](const Tensor& y) { return x.is_same(y); }); };
  };
  for (const auto& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    const auto parameters = bucket.getParameters();
    if (sums_.has_started(bucket) || !std::ranges::all_of(parameters, is_in(complete))) continue;
    if (std::ranges::any_of(parameters, is_in(missing))) {
      sums_.start_spoilt(bucket);
      continue;
    }
    fill_from_gradients(bucket);
    sums_.start(bucket);
  }
}

void Buckets::put_into_gradients() {
  const auto put = [this](const Tensor& parameter, const Tensor& view) {
    auto& gradient = parameter.mutable_grad();
    if (options_.are_gradients) {
      gradient = view;
    } else if (gradient.defined()) {
      gradient.copy_(view);
    } else {
      gradient = torch::autograd::utils::clone_obey_contract(view, parameter);
    }
  };
  const at::NoGradGuard no_grad;
  for (const auto& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) for_each_gradient(bucket, put);
}

}  // namespace tandem::parallel::detail
