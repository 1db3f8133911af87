#include "tandem/search/search_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/finite.h"
#include "tandem/comm/agree.h"
#include "tandem/train/weights_hash.h"

namespace tandem::search {
namespace {

constexpr const char* kBestAccuracy = "search.best_accuracy";
constexpr const char* kBest = "search.best.";
constexpr const char* kBlock = "architect";

/// All of these must be the same as the weights' step has them.
ArchitectOptions with_parts(ArchitectOptions options, const train::SupervisedStepOptions& weights) {
  options.accumulate = weights.accumulate;
  options.shards = weights.shards;
  return options;
}

const SearchStepOptions& checked(const SearchStepOptions& options) {
  const auto& strategy = *options.weights.strategy;
  if (!strategy.has_whole_state) {
    throw SettingsError("parallel is " + std::string(strategy.name) + " in a search, wanted ddp",
                        "the architect needs all weights, and the optimizer's state, on each rank");
  }
  const auto& optimizer = options.weights.optimizer;
  if (options.architect.order == 2 && optimizer.kind != train::OptimizerKind::sgd) {
    throw SettingsError("optimizer is not SGD in a search of order 2, wanted sgd",
                        "the gradient is that of a step of SGD; order 1 takes any optimizer");
  }
  if (options.architect.order == 2 && !optimizer.groups.empty()) {
    throw SettingsError("groups of parameters have a weight decay of their own in a search of order 2, wanted one",
                        "leave the groups out, or search with order 1");
  }
  return options;
}

std::vector<Tensor> momentum_of(const std::vector<train::Parameter>& state,
                                const std::vector<train::Parameter>& weights) {
  std::vector<Tensor> velocity;
  for (const auto& weight : weights) {
    const auto found = std::ranges::find(state, "optimizer.momentum_buffer." + weight.name, &train::Parameter::name);
    if (found == state.end()) return {};
    velocity.push_back(found->tensor);
  }
  return velocity;
}

bool is_finite(double loss, const std::vector<train::Parameter>& parameters) {
  return std::isfinite(loss) && std::ranges::all_of(parameters, [](const train::Parameter& parameter) {
           return all_finite(parameter.tensor.grad());
         });
}

std::string hash_of_rank(const std::vector<train::Parameter>& alphas) {
  const auto alone = comm::make_single_group();
  return train::weights_hash(alphas, *alone);
}

}  // namespace

/// Copies of what a step of the alphas changes.
struct SearchStep::Undo {
  explicit Undo(SearchStep& step) {
    for (const auto& parameter : step.architect_.alphas()) tensors.push_back(parameter.tensor.detach());
    for (const auto& parameter : step.alphas_.state()) tensors.push_back(parameter.tensor);
    const CategoryScope scope(Category::optimizer);
    for (const auto& tensor : tensors) copies.push_back(tensor.clone());
  }

  void apply() const {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(copies[i]);
  }

  std::vector<Tensor> tensors, copies;
};

train::OptimizerOptions SearchStepOptions::alphas_optimizer() {
  return {.kind = train::OptimizerKind::adam, .nesterov = false, .weight_decay = 1e-3, .beta1 = 0.5, .beta2 = 0.999};
}

SearchStep::SearchStep(train::Task& task, const models::Space& space, SearchStepOptions options, parallel::Mesh& mesh)
    : task_(task),
      space_(space),
      method_(models::search_method(options.method)),
      options_(checked(options)),
      mesh_(mesh),
      architect_(task, with_parts(options.architect, options.weights), mesh.batch()),
      weights_(task, options.weights, mesh),
      alphas_(architect_.alphas(), options.alphas),
      velocity_(momentum_of(weights_.state(), architect_.weights())) {
  for (const auto& parameter : architect_.alphas()) best_alphas_.push_back(parameter.tensor.detach().clone());
  check_alphas();
  if (options_.guard) guard_.emplace(architect_.alphas(), *options_.guard);
}

std::optional<train::Reading> SearchStep::run(const data::Batch& batch, int64_t step, double learning_rate) {
  step_ = step;
  const bool moves_alphas = step >= first_step_ && !(guard_ && guard_->has_acted());
  std::optional<Undo> undo;
  if (moves_alphas) {
    undo.emplace(*this);
    if (const auto fault = move_alphas(batch, step, learning_rate)) return train::Reading{.skipped = fault};
  }
  auto reading = weights_.run(batch, step, learning_rate);
  if (undo && reading && (reading->skipped || reading->is_left_out)) undo->apply();
  return reading;
}

std::optional<NonFiniteError> SearchStep::move_alphas(const data::Batch& batch, int64_t step, double learning_rate) {
  task_.begin_step(step);
  loss_ = architect_.run(batch, validation_batch(batch, step), virtual_step(learning_rate));
  const bool is_good = is_finite(loss_, architect_.alphas());
  if (is_good) {
    const PhaseScope phase(Phase::optimizer);
    alphas_.step(options_.alphas_rate);
  }
  alphas_.zero_grad();
  if (is_good) return std::nullopt;
  return NonFiniteError("validation loss of step " + std::to_string(step + 1) +
                        " or its gradient by the alphas is not " + "finite");
}

VirtualStep SearchStep::virtual_step(double learning_rate) const {
  const auto& optimizer = options_.weights.optimizer;
  return {.rate = learning_rate,
          .momentum = optimizer.momentum,
          .weight_decay = optimizer.weight_decay,
          .nesterov = optimizer.nesterov,
          .velocity = velocity_};
}

const data::Batch& SearchStep::validation_batch(const data::Batch& training, int64_t step) {
  if (validation_ == nullptr) return training;
  const CategoryScope scope(Category::buffers);
  const auto of_epoch = validation_->batches_per_epoch();
  if (next_batch_ != step || step % of_epoch == 0) validation_->start(step / of_epoch, step % of_epoch);
  if (!validation_->next(batch_))
    throw DataError("the validation images have no batch for step " + std::to_string(step + 1));
  next_batch_ = step + 1;
  return batch_;
}

/// The passes of the architect are run: the graph of a gradient is not that of its blocks one by one.
memory::Composition SearchStep::rehearse(const data::Batch& batch, memory::Account held) {
  int64_t undo = 0;
  for (const auto& tensor : Undo(*this).tensors) undo += static_cast<int64_t>(tensor.nbytes());
  held.add(Category::optimizer, undo);
  auto of_weights = weights_.rehearse(batch, held);
  const memory::ProbeScope probe;
  auto context = current_context();
  context.category = Category::activations;
  context.step = Context::kRehearsal;
  const ContextScope scope(context);
  architect_.run(batch, batch, virtual_step(options_.alphas_rate));
  alphas_.zero_grad();
  memory::Composition passes{.account = held};
  passes.account.at_peak = passes.highest = held.live;
  const auto at_peak = probe.account().at_peak;
  for (size_t i = 0; i < at_peak.size(); ++i) passes.account.at_peak[i] = passes.highest[i] = held.live[i] + at_peak[i];
  passes.levels = {{Phase::backward, block_number(kBlock), passes.account.at_peak}};
  passes.block = block_number(kBlock);
  return highest_of(std::move(of_weights), std::move(passes));
}

void SearchStep::unify() {
  weights_.unify();
  auto& group = mesh_.world();
  const auto hashes = comm::gather_texts(hash_of_rank(architect_.alphas()), group);
  for (size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    C10_THROW_ERROR(DistError, "search: the alphas of rank " + std::to_string(rank) +
                                   " differ from those of rank 0, wanted the same bits on each");
  }
}

std::vector<train::Parameter> SearchStep::state() const {
  auto all = weights_.state();
  for (const auto& parameter : alphas_.state()) all.push_back(parameter);
  if (guard_) std::ranges::move(guard_->state(), std::back_inserter(all));
  for (size_t i = 0; i < best_alphas_.size(); ++i) {
    const auto& parameter = architect_.alphas()[i];
    all.push_back(parameter.beside(kBest + parameter.name, best_alphas_[i]));
  }
  return all;
}

storage::Fields SearchStep::numbers() const {
  auto numbers = weights_.numbers();
  numbers.emplace_back(kBestAccuracy, best_accuracy_);
  if (guard_) std::ranges::move(guard_->numbers(), std::back_inserter(numbers));
  return numbers;
}

void SearchStep::set_numbers(const storage::Fields& numbers) {
  weights_.set_numbers(numbers);
  if (storage::find_value(numbers, kBestAccuracy) != nullptr) best_accuracy_ = storage::number(numbers, kBestAccuracy);
  if (guard_) guard_->set_numbers(numbers);
  next_batch_ = -1;
}

train::Facts SearchStep::facts() const {
  auto facts = weights_.facts();
  facts.push_back({"validation_loss", loss_});
  if (const auto acted_at = guard_step()) facts.push_back({"guard_step", static_cast<double>(*acted_at)});
  const auto found = cells();
  for (size_t i = 0; i < found.size(); ++i) {
    facts.push_back({"skips_" + std::string(space_.cells[i].kind), static_cast<double>(models::skips_of(found[i]))});
  }
  return facts;
}

train::Scores SearchStep::evaluate(data::Loader& loader, const train::Tick& tick, const train::Answered& answered) {
  auto scores = weights_.evaluate(loader, tick, answered);
  const auto accuracy = scores.value("top1");
  if (accuracy > best_accuracy_) {
    best_accuracy_ = accuracy;
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < best_alphas_.size(); ++i) best_alphas_[i].copy_(architect_.alphas()[i].tensor);
  }
  if (guard_ && batch_.images.defined()) {
    const double eigenvalue = hessian_eigenvalue();
    guard_->add(eigenvalue, step_ + 1);
    scores.list.push_back(
        {.name = "eigenvalue", .label = "eigenvalue", .value = eigenvalue, .better = train::Better::lower});
  }
  return scores;
}

double SearchStep::hessian_eigenvalue() {
  int64_t size = 0;
  for (const auto& alpha : architect_.alphas()) size += alpha.tensor.numel();
  const auto product = [&](const Tensor& vector) {
    std::vector<Tensor> parts, flat;
    int64_t at = 0;
    for (const auto& [name, tensor, placement] : architect_.alphas()) {
      parts.push_back(vector.narrow(0, at, tensor.numel()).to(tensor.device(), tensor.scalar_type()).view_as(tensor));
      at += tensor.numel();
    }
    for (const auto& part : architect_.hessian_product(batch_, parts)) flat.push_back(part.reshape({-1}));
    return at::cat(flat).to(at::kCPU, at::kDouble);
  };
  return largest_eigenvalue(product, size, /*tolerance=*/1e-3);
}

/// By numbers of the same shapes: those of a rank may be anything before it begins.
void SearchStep::check_alphas() const {
  std::vector<Tensor> alphas;
  for (const auto& parameter : architect_.alphas()) alphas.push_back(at::zeros_like(parameter.tensor.detach()));
  derive(space_, shares_of(space_, method_, alphas));
}

std::vector<Tensor> SearchStep::shares() const {
  std::vector<Tensor> alphas;
  for (const auto& parameter : architect_.alphas()) alphas.push_back(parameter.tensor.detach());
  return shares_of(space_, method_, alphas);
}

models::Cells SearchStep::cells(bool best) const {
  return derive(space_, best ? shares_of(space_, method_, best_alphas_) : shares());
}

std::string SearchStep::alphas_hash() { return train::weights_hash(architect_.alphas(), mesh_.world()); }

}  // namespace tandem::search
