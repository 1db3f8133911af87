#include "tandem/search/architect.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/tangent.h"
#include "tandem/comm/split.h"
#include "tandem/models/space.h"

namespace tandem::search {
namespace {

/// Of passes whose images move no running statistics.
Context held_context(const data::Batch& batch) {
  auto context = current_context();
  context.statistics = BatchStatistics::hold;
  context.first_sample = batch.first_sample;
  return context;
}

/// Undefined where the loss does not depend on it.
std::vector<Tensor> differentiate(const Tensor& loss, const std::vector<Tensor>& by) {
  if (!loss.requires_grad()) return std::vector<Tensor>(by.size());
  const PhaseScope phase(Phase::backward);
  const c10::AutoFwGradMode no_tangents(false);  // of gradients
  return torch::autograd::grad({loss}, by, {}, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
}

std::vector<Tensor> copies_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

std::vector<Tensor> joined(std::vector<Tensor> first, const std::vector<Tensor>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

double length_of(const std::vector<Tensor>& vector) {
  std::vector<Tensor> lengths;
  for (const auto& part : vector) lengths.push_back(at::linalg_vector_norm(part, 2, {}, false, at::kDouble));
  return at::stack(lengths).norm().item<double>();
}

std::vector<Tensor> slice(const std::vector<Tensor>& all, size_t first, size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

void require_gradients(const std::vector<Tensor>& tensors, bool is_on) {
  for (auto tensor : tensors) tensor.requires_grad_(is_on);
}

/// While it lives, the tensors require a gradient, or none.
class GradientScope {
 public:
  explicit GradientScope(const std::vector<Tensor>& tensors, bool is_on = true) : tensors_(tensors), is_on_(is_on) {
    require_gradients(tensors_, is_on_);
  }
  ~GradientScope() { require_gradients(tensors_, !is_on_); }
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

 private:
  const std::vector<Tensor>& tensors_;
  bool is_on_;
};

/// Replaces the weights by those after a step with these gradients.
void make_step(const std::vector<Tensor>& weights, const VirtualStep& step, const std::vector<Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < weights.size(); ++i) {
    auto move = gradients[i].add(weights[i], step.weight_decay);
    const auto velocity = step.velocity.empty() ? Tensor() : step.velocity[i];
    if (step.nesterov) {
      const auto next = velocity.defined() ? move.add(velocity, step.momentum) : move;
      move = move.add(next, step.momentum);
    } else if (velocity.defined()) {
      move.add_(velocity, step.momentum);
    }
    weights[i].sub_(move, step.rate);
  }
}

void add(const std::vector<Tensor>& weights, const std::vector<Tensor>& vector, double factor) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < weights.size(); ++i) weights[i].add_(vector[i], factor);
}

/// A copy of the weights, which puts their bits back; at the latest at its end.
class SavedWeights {
 public:
  explicit SavedWeights(const std::vector<Tensor>& weights) : weights_(weights), copies_(copies_of(weights)) {}
  ~SavedWeights() {
    if (is_due_) restore();
  }
  SavedWeights(const SavedWeights&) = delete;
  SavedWeights& operator=(const SavedWeights&) = delete;

  /// The weights are about to change.
  void expect_change() { is_due_ = true; }

  void restore() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i].copy_(copies_[i]);
    is_due_ = false;
  }

 private:
  const std::vector<Tensor>& weights_;
  std::vector<Tensor> copies_;
  bool is_due_ = false;
};

const ArchitectOptions& checked(const ArchitectOptions& options) {
  if (options.order != 1 && options.order != 2) {
    throw SettingsError("order is " + std::to_string(options.order) + ", wanted 1 or 2");
  }
  if (!(options.radius > 0))
    throw SettingsError("radius is " + std::to_string(options.radius) + ", wanted more than 0");
  return options;
}

}  // namespace

Architect::Architect(train::Task& task, const ArchitectOptions& options, comm::ProcessGroup& data)
    : task_(task), options_(checked(options)), data_(data) {
  for (const auto& parameter : task.parameters()) {
    if (parameter.name.starts_with(std::string(models::kAlphas) + ".")) {
      alphas_.push_back(parameter);
    } else if (parameter.tensor.requires_grad()) {
      TORCH_CHECK_VALUE(parameter.placement.is_everywhere(), "architect: this rank holds a part of ", parameter.name,
                        ", wanted all of it");
      weights_.push_back(parameter);
    }
  }
  TORCH_CHECK_VALUE(!alphas_.empty(), "architect: the task has no parameter whose name begins with alphas.");
  weight_tensors_ = parallel::tensors_of(weights_);
  alpha_tensors_ = parallel::tensors_of(alphas_);
  require_gradients(alpha_tensors_, false);
}

double Architect::run(const data::Batch& training, const data::Batch& validation, const VirtualStep& step) {
  const GradientScope scope(alpha_tensors_);
  const bool looks_ahead = options_.order == 2 && step.rate != 0;
  std::optional<SavedWeights> saved;
  if (looks_ahead) {
    auto gradients = total_of(weight_tensors_);
    add_parts(training, gradients, [&](const Loss& loss) { return differentiate(loss.objective, weight_tensors_); });
    gradients.end();
    saved.emplace(weight_tensors_);
    saved->expect_change();
    make_step(weight_tensors_, step, gradients.views());
  }
  const auto by = looks_ahead ? joined(weight_tensors_, alpha_tensors_) : alpha_tensors_;
  auto ahead = total_of(joined(by, {at::empty({1}, alpha_tensors_[0].options())}));
  add_parts(validation, ahead,
            [&](const Loss& loss) { return joined(differentiate(loss.objective, by), {loss.term}); });
  if (looks_ahead) saved->restore();
  ahead.end();
  const auto direct = slice(ahead.views(), by.size() - alpha_tensors_.size(), alpha_tensors_.size());
  for (size_t i = 0; i < alpha_tensors_.size(); ++i) alpha_tensors_[i].mutable_grad() = direct[i].clone();
  if (looks_ahead) {
    const auto vector = slice(ahead.views(), 0, weight_tensors_.size());
    saved.reset();
    const bool is_exact = options_.product == Product::exact;
    const auto product = is_exact ? derivative_along(training, weight_tensors_, vector) : differences(training, vector);
    const double rate = step.nesterov ? step.rate * (1 + step.momentum) : step.rate;
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < alpha_tensors_.size(); ++i) alpha_tensors_[i].mutable_grad().sub_(product[i], rate);
  }
  return ahead.views().back().item<double>();
}

std::vector<Tensor> Architect::hessian_product(const data::Batch& validation, const std::vector<Tensor>& vector) {
  const GradientScope scope(alpha_tensors_);
  return derivative_along(validation, alpha_tensors_, vector);
}

std::vector<train::BatchPart> Architect::parts_of(const data::Batch& batch) const {
  if (options_.shards > 0) return train::cut_shards(batch, options_.shards, data_);
  return train::cut(batch, options_.accumulate, comm::split_sizes(batch.global_size, data_.size()), data_.rank());
}

Architect::Loss Architect::loss_of(const train::BatchPart& part) {
  const auto loss = task_.loss(part.batch, part.sizes);
  TORCH_INTERNAL_ASSERT(loss.numel() == std::ssize(part.shares), "a step's loss has ", loss.numel(), " numbers");
  const auto shares =
      at::tensor(part.shares, at::kDouble).to(loss.options().requires_grad(false), /*non_blocking=*/true).view_as(loss);
  const auto terms = loss * shares;
  auto own = terms.detach().reshape({-1});
  if (own.numel() > 1) {
    own = own.narrow(0, data_.rank(), 1);
  } else if (task_.summed_along().empty() && data_.rank() > 0) {
    own = at::zeros_like(own);
  }
  return {terms.sum(), own};
}

parallel::GradientTotal Architect::total_of(const std::vector<Tensor>& tensors) {
  return parallel::GradientTotal(tensors, data_, options_.shards > 0);
}

/// Adds what `gradients` makes of the loss of each part.
void Architect::add_parts(const data::Batch& batch, parallel::GradientTotal& total, const Gradients& gradients) {
  for (const auto& part : parts_of(batch)) {
    const ContextScope scope(held_context(part.batch));
    total.add(gradients(loss_of(part)));
  }
}

/// Of the gradient by the alphas, along `vector` in `tensors`: the gradient of the loss's own derivative along it.
std::vector<Tensor> Architect::derivative_along(const data::Batch& batch, const std::vector<Tensor>& tensors,
                                                const std::vector<Tensor>& vector) {
  const GradientScope none(weight_tensors_, false);
  const TangentScope tangents(tensors, vector);
  auto product = total_of(alpha_tensors_);
  add_parts(batch, product,
            [&](const Loss& loss) { return differentiate(tangent_of(loss.objective), alpha_tensors_); });
  product.end();
  return copies_of(product.views());
}

std::vector<Tensor> Architect::differences(const data::Batch& training, const std::vector<Tensor>& vector) {
  const double length = length_of(vector), distance = length > 0 ? options_.radius / length : options_.radius;
  auto product = total_of(alpha_tensors_);
  SavedWeights saved(weight_tensors_);
  const auto add_gradients = [&](double sign) {
    saved.expect_change();
    add(weight_tensors_, vector, sign * distance);
    add_parts(training, product,
              [&](const Loss& loss) { return differentiate(loss.objective * sign, alpha_tensors_); });
    saved.restore();
  };
  add_gradients(1);
  add_gradients(-1);
  product.end();
  auto quotient = copies_of(product.views());
  const double factor = options_.product == Product::multiplied ? distance / 2 : 1 / (2 * distance);
  for (auto& part : quotient) part.mul_(factor);
  return quotient;
}

}  // namespace tandem::search
