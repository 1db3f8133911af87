#include "tandem/parallel/detail/replica_gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <set>

#include "tandem/memory/meter.h"

namespace tandem::parallel::detail {
namespace {

using torch::autograd::variable_list;

thread_local int current_replica = 0;

/// True if nobody else can see the tensor's memory, so that it may be written.
bool is_own(const Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.is_non_overlapping_and_dense();
}

}  // namespace

/// Where the graphs of the replicas end, for one weight.
class ReplicaGradients::Leaf : public torch::autograd::Node {
 public:
  Leaf(ReplicaGradients& owner, size_t weight, const Tensor& tensor) : owner_(owner), weight_(weight) {
    add_input_metadata(tensor);
  }

  variable_list apply(variable_list&& gradients) override {
    owner_.add(weight_, current_replica, std::move(gradients[0]));
    return {};
  }

 private:
  ReplicaGradients& owner_;
  size_t weight_;
};

ReplicaGradients::ReplicaGradients(const std::vector<std::vector<Tensor>>& weights) {
  std::set<const void*> known;
  for (const auto& of_replica : weights) {
    TORCH_CHECK_VALUE(of_replica.size() == weights[0].size(), "replicas: one has ", of_replica.size(),
                      " weights, and the first ", weights[0].size(), ", wanted equal numbers");
    for (size_t i = 0; i < of_replica.size(); ++i) {
      const auto& weight = of_replica[i];
      TORCH_CHECK_VALUE(weight.is_leaf() && weight.requires_grad(), "replicas: weight ", i,
                        " is not a leaf that requires a gradient");
      if (!known.insert(weight.unsafeGetTensorImpl()).second) continue;
      tensors_.push_back(weight);
      leaves_.push_back(std::make_shared<Leaf>(*this, i, weight));
    }
  }
  for (size_t i = 0; i < weights.at(0).size(); ++i) sums_.push_back(std::make_unique<Sum>());
}

ReplicaGradients::~ReplicaGradients() = default;

ReplicaGradients::Scope::Scope(ReplicaGradients& gradients) : gradients_(gradients) {
  for (size_t i = 0; i < gradients.tensors_.size(); ++i) {
    const auto& weight = gradients.tensors_[i];
    before_.push_back(torch::autograd::impl::grad_accumulator(weight));
    torch::autograd::impl::set_grad_accumulator(weight, gradients.leaves_[i]);
  }
}

ReplicaGradients::Scope::~Scope() {
  for (size_t i = 0; i < before_.size(); ++i) {
    torch::autograd::impl::set_grad_accumulator(gradients_.tensors_[i], before_[i]);
  }
}

ReplicaGradients::OfReplica::OfReplica(ReplicaGradients& gradients, int replica) : before_(current_replica) {
  current_replica = replica;
  ++gradients.at_work_;
}
ReplicaGradients::OfReplica::~OfReplica() { current_replica = before_; }

void ReplicaGradients::begin(int replicas) {
  at_work_ = 0;
  ready_.clear();
  for (auto& sum : sums_) {
    sum->next = 0;
    sum->waiting.assign(static_cast<size_t>(replicas), {});
    sum->has_come.assign(static_cast<size_t>(replicas), 0);
    sum->value = Tensor();
  }
}

bool ReplicaGradients::Sum::is_ready() {
  for (; next < waiting.size() && has_come[next] != 0; ++next) {
    if (!waiting[next].defined()) continue;
    if (value.defined()) return true;
    value = std::move(waiting[next]);
  }
  return false;
}

void ReplicaGradients::Sum::add_ready() {
  for (; is_ready(); ++next) {
    const auto term = std::move(waiting[next]);
    if (is_own(value)) {
      value.add_(term);
    } else {
      value = value + term;
      memory::tag(value, Category::gradients);
    }
  }
}

void ReplicaGradients::add(size_t weight, int replica, Tensor gradient) {
  const at::NoGradGuard no_grad;
  if (gradient.defined()) memory::tag(gradient, Category::gradients);
  auto& sum = *sums_[weight];
  bool is_ready = false;
  {
    const std::lock_guard lock(sum.mutex);
    const auto place = static_cast<size_t>(replica);
    if (sum.has_come.at(place) != 0) return;
    sum.has_come[place] = 1;
    sum.waiting[place] = std::move(gradient);
    is_ready = sum.is_ready();
    if (is_ready && at_work_ == 1) return sum.add_ready();  // nobody else will
  }
  if (!is_ready) return work_off();
  const std::lock_guard lock(mutex_);
  ready_.push_back(weight);
}

void ReplicaGradients::work_off() {
  for (;;) {
    std::vector<size_t> ready;
    {
      const std::lock_guard lock(mutex_);
      ready.swap(ready_);
    }
    if (ready.empty()) return;
    for (const auto weight : ready) {
      const std::lock_guard lock(sums_[weight]->mutex);
      sums_[weight]->add_ready();
    }
  }
}

void ReplicaGradients::finish(int replica) {
  for (size_t i = 0; i < sums_.size(); ++i) add(i, replica, {});
  --at_work_;
  const at::NoGradGuard no_grad;
  work_off();
}

std::vector<Tensor> ReplicaGradients::take() {
  std::vector<Tensor> values;
  for (auto& sum : sums_) values.push_back(std::move(sum->value));
  return values;
}

}  // namespace tandem::parallel::detail
