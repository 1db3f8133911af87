#include "tandem/parallel/data_parallel.h"

#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <map>

#include "tandem/comm/collectives.h"
#include "tandem/comm/wire_bytes.h"
#include "tandem/memory/meter.h"

namespace tandem::parallel {
namespace {

/// Sums a bucket over the ranks. The Reducer's own default would divide by their number first.
class SumHook : public c10d::CommHookInterface {
 public:
  explicit SumHook(comm::ProcessGroup& group) : group_(group) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const comm::PhaseScope phase(comm::Phase::backward);
    std::vector<Tensor> tensors = {bucket.getBuffer()};
    comm::CallInfo call;
    call.operation = "all_reduce";
    call.shape = tensors[0].sizes().vec();
    call.type = c10::toString(tensors[0].scalar_type());
    call.detail = "gradients";
    const comm::WireBytes wire{group_.rank(), group_.size()};
    const auto number = group_.begin(call, wire.all_reduce(tensors[0].numel(), tensors[0].element_size()));
    const auto sent = start(tensors, call, number);
    return sent->then(
        [this, call, number](c10::ivalue::Future& done) {
          try {
            auto value = done.value();
            group_.log()->end(number);
            return value;
          } catch (const std::exception& error) {
            group_.log()->fail(number, call, error);
          }
        },
        sent->elementType());
  }

  Tensor parseHookResult(const c10::IValue& result) override { return c10d::detail::parseCppCommHookResult(result); }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> start(std::vector<Tensor>& tensors, const comm::CallInfo& call,
                                                uint64_t number) {
    try {
      const comm::CallScope scope(&call);
      return group_.backend().allreduce(tensors)->getFuture();
    } catch (const std::exception& error) {
      group_.log()->fail(number, call, error);
    }
  }

  comm::ProcessGroup& group_;
};

/// Sends the tensors, all of one type, as one message.
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

/// Messages of one type and of at most `bytes`, unless a tensor is larger by itself.
void broadcast_all(const std::vector<Tensor>& tensors, int64_t bytes, comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const memory::Scope scope(memory::Category::communication);
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

struct DataParallel::Impl {
  std::vector<Tensor> buffers;
  comm::ProcessGroup& group;
  std::unique_ptr<c10d::Reducer> reducer;
};

DataParallel::DataParallel(std::vector<Tensor> parameters, std::vector<Tensor> buffers, std::vector<std::string> names,
                           comm::ProcessGroup& group, const DataParallelOptions& options)
    : impl_(new Impl{std::move(buffers), group, nullptr}) {
  TORCH_CHECK_VALUE(names.size() == parameters.size(), "data parallel: names has ", names.size(),
                    " entries, wanted one a parameter, ", parameters.size());
  if (group.size() == 1 || parameters.empty()) return;
  broadcast_all(parameters, options.first_bucket_bytes, group);
  sync_buffers();

  const std::vector<size_t> limits = {static_cast<size_t>(options.first_bucket_bytes),
                                      static_cast<size_t>(options.bucket_bytes)};
  // The last layers' gradients come first, so the buckets run from the back.
  std::vector<Tensor> reversed(parameters.rbegin(), parameters.rend());
  auto [buckets, bucket_limits] = c10d::compute_bucket_assignment_by_size(reversed, limits);
  for (auto& bucket : buckets) {
    for (auto& index : bucket) index = parameters.size() - 1 - index;
  }
  std::unordered_map<size_t, std::string> name_of;
  for (size_t i = 0; i < names.size(); ++i) name_of[i] = names[i];
  const memory::Scope scope(memory::Category::gradients);
  impl_->reducer = std::make_unique<c10d::Reducer>(
      parameters, buckets, group.handle(), std::vector<bool>(parameters.size(), false), options.bucket_bytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, name_of, options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>());
  impl_->reducer->register_comm_hook(std::make_unique<SumHook>(group));
}

DataParallel::DataParallel(const torch::nn::Module& module, comm::ProcessGroup& group,
                           const DataParallelOptions& options)
    : DataParallel(module.parameters(), module.buffers(), module.named_parameters().keys(), group, options) {}

DataParallel::~DataParallel() = default;

void DataParallel::prepare_backward(const Tensor& output) {
  if (!impl_->reducer) return;
  const memory::Scope scope(memory::Category::gradients);  // the buckets are rebuilt once, in the order seen
  impl_->reducer->rebuild_buckets();
  impl_->reducer->prepare_for_backward({output});
}

void DataParallel::sync_buffers() {
  if (impl_->group.size() > 1 && !impl_->buffers.empty()) {
    broadcast_all(impl_->buffers, DataParallelOptions().first_bucket_bytes, impl_->group);
  }
}

}  // namespace tandem::parallel
