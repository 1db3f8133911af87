#include "tandem/parallel/distributed_data_parallel.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include "tandem/base/context.h"
#include "tandem/parallel/detail/broadcast_all.h"
#include "tandem/parallel/detail/buckets.h"
#include "tandem/parallel/detail/gradient_arrivals.h"
#include "tandem/parallel/detail/unused_parameters.h"

namespace tandem::parallel {
namespace {

void at_end_of_backward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

}  // namespace

struct DistributedDataParallel::Impl {
  const std::vector<Tensor> parameters, buffers;
  comm::ProcessGroup& group;
  const DistributedDataParallelOptions options;
  detail::GradientArrivals arrivals;
  detail::UnusedParameters unused;
  std::unique_ptr<detail::Buckets> buckets;  // null: there is nothing to sum
  bool is_prepared = false, is_running = false, is_taking = false;

  void begin_to_take(flight::Where where);
  void make_buckets();
  void prepare(const Tensor& loss, const MicroBatch& micro, flight::Where where);
  bool begin_backward();
  void finish_backward(const std::weak_ptr<Impl>& self);
  void await_sums();
  void step_without_backward();
  void settle_unused();
  void clear_unused();
  void tell_of_gradients() const;
};

void DistributedDataParallel::Impl::make_buckets() {
  detail::GradientSums::Parts parts = {.parameters = arrivals.parameters(), .names = arrivals.names()};
  parts.before = options.before_sum;
  parts.after = options.after_sum;
  {
    const CategoryScope scope(Category::communication);
    parts.hook = options.hook_kind().make(parts.parameters, options.hook_options());
  }
  const detail::BucketOptions sizes = {options.bucket_bytes, options.first_bucket_bytes,
                                       options.gradient_as_bucket_view};
  buckets = std::make_unique<detail::Buckets>(std::move(parts), group.beside(), sizes);
}

void DistributedDataParallel::Impl::prepare(const Tensor& loss, const MicroBatch& micro, flight::Where where) {
  if (micro.is_first()) arrivals.begin_step(), is_taking = false;  // the step before may have been left
  if (!micro.is_last()) return;  // gradients add up as long as no backward is prepared
  TORCH_CHECK(!is_running || !buckets,
              "data parallel: the backward before this one ended with an error, wanted one that came to its end: make "
              "DistributedDataParallel anew");
  arrivals.begin_backward();
  is_prepared = true;
  if (!buckets) return;
  buckets->rebuild();
  buckets->sums().reset(where);
  if (loss.requires_grad()) buckets->prepare(loss);
}

/// Called when the prepared backward begins. Returns false if there is none.
bool DistributedDataParallel::Impl::begin_backward() { return is_running = std::exchange(is_prepared, false); }

/// If a gradient is missing on this rank, its Reducer would wait for it for ever: the rank sends its unfinished buckets
/// marked as spoilt, so that no rank waits for them. All ranks then see the mark and exchange which gradients are
/// missing. A step in which none is missing costs no message.
void DistributedDataParallel::Impl::await_sums() {
  bool in_doubt = !arrivals.are_complete();
  if (buckets) {
    if (in_doubt) buckets->start_the_rest();
    in_doubt = buckets->sums().wait_for_spoilt();
  }
  if (in_doubt) arrivals.check(group, detail::kAllowUnused);
}

/// Called at the end of a backward, before the Reducer puts the sums into .grad.
void DistributedDataParallel::Impl::finish_backward(const std::weak_ptr<Impl>& self) {
  await_sums();
  settle_unused();
  at_end_of_backward([self] {
    const auto impl = self.lock();
    if (!impl) return;
    impl->clear_unused();
    impl->tell_of_gradients();
    impl->is_running = false;
  });
}

/// Those that came in any backward of the step are there.
void DistributedDataParallel::Impl::begin_to_take(flight::Where where) {
  arrivals.begin_backward();
  arrivals.excuse_used();
  if (std::exchange(is_taking, true) || !buckets) return;
  buckets->rebuild();
  buckets->sums().reset(where);
}

/// A backward that computes nothing, on this rank.
void DistributedDataParallel::Impl::step_without_backward() {
  is_running = true;
  if (buckets && arrivals.are_complete()) buckets->start_from_gradients();
  await_sums();
  settle_unused();
  if (buckets) buckets->put_into_gradients();
  clear_unused();
  tell_of_gradients();
  is_running = false;
}

void DistributedDataParallel::Impl::settle_unused() {
  const bool was_settled = unused.are_settled();
  unused.find_nowhere(arrivals.used(), buckets ? group.beside() : group);
  if (was_settled || !unused.are_settled()) return;
  const auto place =
      group.size() == 1 ? "" : " on rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size());
  auto left_out = unused.own();  // of the last micro-batch; an earlier one may have used some
  std::erase_if(left_out, [&](size_t i) { return arrivals.used()[i] == 1; });
  arrivals.refuse(left_out, place);
}

void DistributedDataParallel::Impl::clear_unused() {
  for (const auto i : unused.nowhere()) arrivals.parameters()[i].mutable_grad().reset();
}

/// Where nothing travels, no bucket tells.
void DistributedDataParallel::Impl::tell_of_gradients() const {
  if (buckets) return;
  for (const auto& callback : {options.before_sum, options.after_sum}) {
    for (size_t i = 0; callback && i < arrivals.names().size(); ++i) {
      const auto& gradient = arrivals.parameters()[i].grad();
      if (gradient.defined()) callback(arrivals.names()[i], gradient);
    }
  }
}

DistributedDataParallel::DistributedDataParallel(std::vector<Tensor> parameters, std::vector<Tensor> buffers,
                                                 std::vector<std::string> names, comm::ProcessGroup& group,
                                                 const DistributedDataParallelOptions& options) {
  TORCH_CHECK_VALUE(names.size() == parameters.size(), "data parallel: names has ", names.size(),
                    " entries, wanted one a parameter, ", parameters.size());
  std::vector<Parameter> all;
  for (size_t i = 0; i < parameters.size(); ++i) all.push_back(Parameter::replicated(names[i], parameters[i]));
  check_each_once("data parallel", all);
  const auto of_trained = trained_of(all);
  const auto trained = tensors_of(of_trained);
  const bool is_alone = group.size() == 1 || parameters.empty();
  impl_ = std::shared_ptr<Impl>(new Impl{std::move(parameters),
                                         std::move(buffers),
                                         group,
                                         options,
                                         {trained, names_of(of_trained)},
                                         {trained, options.find_unused_parameters, options.static_graph},
                                         {}});
  if (is_alone) return;
  copy_from(0);
  if (!trained.empty()) impl_->make_buckets();
}

DistributedDataParallel::DistributedDataParallel(const torch::nn::Module& module, comm::ProcessGroup& group,
                                                 const DistributedDataParallelOptions& options)
    : DistributedDataParallel(tensors_of(parameters_of(module)), module.buffers(), names_of(parameters_of(module)),
                              group, options) {}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::before_forward(const MicroBatch& micro) {
  if (!micro.is_first()) return;
  if (impl_->options.broadcast_buffers) sync_buffers();
  if (micro.count == 1 || !impl_->buckets) return;
  impl_->buckets->rebuild();
  impl_->buckets->lay_gradients();
}

void DistributedDataParallel::before_backward(const Tensor& loss, const MicroBatch& micro, flight::Where where) {
  impl_->prepare(loss, micro, where);
  if (!micro.is_last()) return;
  const auto unused = impl_->unused.in(loss);
  if (!loss.requires_grad()) {  // a function of constants only: there will be no backward
    impl_->begin_backward();
    impl_->arrivals.excuse(unused);
    return impl_->step_without_backward();
  }
  // Backward begins at the loss, and runs its callbacks when all gradients have been computed.
  loss.register_hook([unused, weak = std::weak_ptr(impl_)](const Tensor&) {
    const auto impl = weak.lock();
    if (!impl || !impl->begin_backward()) return;
    at_end_of_backward([weak] {
      if (const auto begun = weak.lock()) begun->finish_backward(weak);
    });
    impl->arrivals.excuse(unused);
    for (const auto i : unused) {
      if (impl->buckets) impl->buckets->skip(i);
    }
  });
}

void DistributedDataParallel::take_gradients(flight::Where where) {
  impl_->begin_to_take(where);
  impl_->step_without_backward();
  impl_->is_taking = false;
}

void DistributedDataParallel::start_to_take(const std::vector<Tensor>& complete, flight::Where where) {
  impl_->begin_to_take(where);
  if (impl_->buckets) impl_->buckets->start_from_gradients(complete, impl_->arrivals.missing());
}

void DistributedDataParallel::shadow_step(flight::Where where) {
  if (impl_->options.broadcast_buffers) sync_buffers();
  if (!impl_->buckets) return;
  zero_grad();
  impl_->arrivals.begin_step();
  impl_->arrivals.excuse_all();
  impl_->buckets->rebuild();
  impl_->buckets->sums().reset(where);
  impl_->step_without_backward();
}

void DistributedDataParallel::end_own_step() {
  const auto& arrivals = impl_->arrivals;
  if (!impl_->unused.are_allowed() && !arrivals.are_complete()) {
    arrivals.check(*comm::make_single_group(), detail::kAllowUnused);
  }
  for (size_t i = 0; i < arrivals.used().size(); ++i) {
    if (arrivals.used()[i] == 0) arrivals.parameters()[i].mutable_grad().reset();
  }
}

SyncMemory DistributedDataParallel::memory() {
  const bool are_owned = impl_->buckets && impl_->options.gradient_as_bucket_view;
  return {.owned_gradients = are_owned ? impl_->arrivals.parameters() : std::vector<Tensor>()};
}

GradientSync::Overlap DistributedDataParallel::overlap() const {
  return impl_->buckets ? impl_->buckets->sums().overlap() : Overlap{};
}

void DistributedDataParallel::sync_buffers() { detail::broadcast_all(impl_->buffers, 0, impl_->group); }

void DistributedDataParallel::copy_from(int root) {
  detail::broadcast_all(impl_->parameters, root, impl_->group);
  detail::broadcast_all(impl_->buffers, root, impl_->group);
}

void DistributedDataParallel::zero_grad() {
  for (const auto& parameter : impl_->arrivals.parameters()) parameter.mutable_grad().reset();
}

comm::ProcessGroup& DistributedDataParallel::group() const { return impl_->group; }

}  // namespace tandem::parallel
