#include "tandem/parallel/distributed_data_parallel.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <map>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/parallel/detail/gradient_arrivals.h"
#include "tandem/parallel/detail/gradient_sums.h"

namespace tandem::parallel {
namespace {

/// Sums each bucket over the ranks. By default the Reducer would divide by the number of ranks first.
class SumHook : public c10d::CommHookInterface {
 public:
  explicit SumHook(std::shared_ptr<detail::GradientSums> sums) : sums_(std::move(sums)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return sums_->start(bucket.getBuffer());
  }

  Tensor parseHookResult(const c10::IValue& result) override { return c10d::detail::parseCppCommHookResult(result); }

 private:
  std::shared_ptr<detail::GradientSums> sums_;
};

/// Broadcasts the tensors, which have the same type, as one message.
void broadcast_flat(const std::vector<Tensor>& tensors, comm::ProcessGroup& group) {
  if (tensors.size() == 1 && tensors[0].is_contiguous()) {
    comm::broadcast_(tensors[0].detach(), 0, group);
    return;
  }
  std::vector<Tensor> flat_parts;
  for (const auto& tensor : tensors) flat_parts.push_back(tensor.detach().reshape({-1}));
  const auto flat = at::cat(flat_parts);
  comm::broadcast_(flat, 0, group);
  int64_t at = 0;
  for (const auto& tensor : tensors) {
    tensor.detach().copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

/// Broadcasts the tensors in messages of one type and of at most `bytes`; a larger tensor is one message.
void broadcast_all(const std::vector<Tensor>& tensors, int64_t bytes, comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  std::map<at::ScalarType, std::vector<Tensor>> by_type;
  for (const auto& tensor : tensors) by_type[tensor.scalar_type()].push_back(tensor);
  for (const auto& [type, members] : by_type) {
    std::vector<Tensor> message;
    int64_t size = 0;
    for (const auto& tensor : members) {
      const auto own = static_cast<int64_t>(tensor.nbytes());
      if (!message.empty() && size + own > bytes) {
        broadcast_flat(message, group);
        message.clear();
        size = 0;
      }
      message.push_back(tensor);
      size += own;
    }
    broadcast_flat(message, group);
  }
}

}  // namespace

struct DistributedDataParallel::Impl {
  std::vector<Tensor> buffers;
  comm::ProcessGroup& group;
  detail::GradientArrivals arrivals;
  std::shared_ptr<detail::GradientSums> sums;
  std::unique_ptr<c10d::Reducer> reducer;  // null: there is nothing to sum
  bool is_prepared = false, is_running = false;

  void make_reducer(const std::vector<Tensor>& trained, const std::vector<std::string>& names,
                    const DistributedDataParallelOptions& options);

  /// Called at the end of a backward. If a gradient is missing on this rank, its Reducer would wait for it for ever:
  /// the rank sends its unfinished buckets marked as spoilt, so that no rank waits for them. All ranks then see the
  /// mark and exchange which gradients are missing. A step in which none is missing costs no message.
  void finish_backward() {
    bool in_doubt = !arrivals.are_complete();
    if (reducer) {
      if (in_doubt) start_the_rest();
      in_doubt = sums->wait_for_spoilt();
    }
    if (in_doubt) arrivals.check(group);
    is_running = false;
  }

  /// Makes each .grad a view into its bucket, filled with zeros.
  void lay_gradients_into_buckets();

  void start_the_rest() {
    for (const auto& bucket : reducer->get_grad_buckets(/*return_zero_tensors=*/false)) {
      if (bucket.getIndex() >= sums->count()) sums->start_spoilt(bucket.getBuffer());
    }
  }
};

void DistributedDataParallel::Impl::make_reducer(const std::vector<Tensor>& trained,
                                                 const std::vector<std::string>& names,
                                                 const DistributedDataParallelOptions& options) {
  const std::vector<size_t> limits = {static_cast<size_t>(options.first_bucket_bytes),
                                      static_cast<size_t>(options.bucket_bytes)};
  // The gradients of the last layers come first, so the buckets run from the back.
  std::vector<Tensor> reversed(trained.rbegin(), trained.rend());
  auto [buckets, bucket_limits] = c10d::compute_bucket_assignment_by_size(reversed, limits);
  for (auto& bucket : buckets) {
    for (auto& index : bucket) index = trained.size() - 1 - index;
  }
  std::unordered_map<size_t, std::string> name_of;
  for (size_t i = 0; i < names.size(); ++i) name_of[i] = names[i];
  const CategoryScope scope(Category::gradients);
  reducer = std::make_unique<c10d::Reducer>(
      trained, buckets, group.handle(), std::vector<bool>(trained.size(), false), options.bucket_bytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, name_of, options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>());
  reducer->register_comm_hook(std::make_unique<SumHook>(sums));
}

DistributedDataParallel::DistributedDataParallel(std::vector<Tensor> parameters, std::vector<Tensor> buffers,
                                                 std::vector<std::string> names, comm::ProcessGroup& group,
                                                 const DistributedDataParallelOptions& options) {
  TORCH_CHECK_VALUE(names.size() == parameters.size(), "data parallel: names has ", names.size(),
                    " entries, wanted one a parameter, ", parameters.size());
  std::vector<Tensor> trained;
  std::vector<std::string> trained_names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) continue;
    trained.push_back(parameters[i]);
    trained_names.push_back(names[i]);
  }
  impl_ = std::shared_ptr<Impl>(
      new Impl{std::move(buffers), group, {trained, trained_names}, std::make_shared<detail::GradientSums>(group), {}});
  if (group.size() == 1 || parameters.empty()) return;
  broadcast_all(parameters, options.first_bucket_bytes, group);
  sync_buffers();
  if (!trained.empty()) impl_->make_reducer(trained, trained_names, options);
}

DistributedDataParallel::DistributedDataParallel(const torch::nn::Module& module, comm::ProcessGroup& group,
                                                 const DistributedDataParallelOptions& options)
    : DistributedDataParallel(module.parameters(), module.buffers(), module.named_parameters().keys(), group, options) {
}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::Impl::lay_gradients_into_buckets() {
  const at::NoGradGuard no_grad;
  for (const auto& bucket : reducer->get_grad_buckets(/*return_zero_tensors=*/false)) {
    bucket.getBuffer().zero_();
    const auto parameters = bucket.getParameters();
    const auto gradients = bucket.getGradients();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& parameter = parameters[i];
      auto gradient = gradients[i];
      // The layout that the Reducer expects of a gradient is the parameter's.
      if (parameter.is_non_overlapping_and_dense()) {
        gradient = gradient.as_strided(parameter.sizes(), parameter.strides(), gradient.storage_offset());
      }
      parameter.mutable_grad() = gradient;
    }
  }
}

void DistributedDataParallel::before_forward(const MicroBatch& micro) {
  if (micro.count == 1 || !micro.is_first() || !impl_->reducer) return;
  impl_->sums->reset({});                          // lets go of the buckets that are rebuilt
  const CategoryScope scope(Category::gradients);  // the buckets are rebuilt once, in the order of arrival
  impl_->reducer->rebuild_buckets();
  impl_->lay_gradients_into_buckets();
}

void DistributedDataParallel::before_backward(const Tensor& loss, const MicroBatch& micro, flight::Where where) {
  if (!micro.is_last()) return;  // the Reducer lets gradients add up as long as no backward is prepared
  TORCH_CHECK(!impl_->is_running || !impl_->reducer,
              "data parallel: the backward before this one ended with an error, wanted one that came to its end: make "
              "DistributedDataParallel anew");
  impl_->arrivals.reset();
  impl_->sums->reset(where);
  impl_->is_prepared = true;
  if (impl_->reducer) {
    const CategoryScope scope(Category::gradients);  // the buckets are rebuilt once, in the order of arrival
    impl_->reducer->rebuild_buckets();
    impl_->reducer->prepare_for_backward({loss});
  }
  const auto begin = [](Impl& impl) { return impl.is_running = std::exchange(impl.is_prepared, false); };
  if (!loss.requires_grad()) {  // a function of constants only: there will be no backward
    begin(*impl_);
    return impl_->finish_backward();
  }
  // Backward begins at the loss, and runs its callbacks when all gradients have been computed.
  loss.register_hook([begin, weak = std::weak_ptr(impl_)](const Tensor&) {
    const auto impl = weak.lock();
    if (!impl || !begin(*impl)) return;
    torch::autograd::Engine::get_default_engine().queue_callback([weak] {
      if (const auto prepared = weak.lock()) prepared->finish_backward();
    });
  });
}

std::vector<Tensor> DistributedDataParallel::owned_gradients() const {
  return impl_->reducer ? impl_->arrivals.parameters() : std::vector<Tensor>();
}

void DistributedDataParallel::sync_buffers() {
  if (impl_->group.size() > 1 && !impl_->buffers.empty()) {
    broadcast_all(impl_->buffers, DistributedDataParallelOptions().first_bucket_bytes, impl_->group);
  }
}

}  // namespace tandem::parallel
