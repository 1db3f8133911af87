#include "tandem/train/supervised_step.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "tandem/base/seconds.h"
#include "tandem/train/block_trace.h"
#include "tandem/train/evaluate.h"
#include "tandem/train/passes/plain_passes.h"

namespace tandem::train {
namespace {

constexpr const char* kEma = "ema";  // among the numbers of a checkpoint

/// How many of the parameters as this rank holds them are trained. These come first: a strategy may hold its own parts,
/// so the task's tensors say which are.
size_t put_trained_first(std::vector<Parameter>& held, const std::vector<Parameter>& parameters) {
  std::set<std::string> frozen;
  for (const auto& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) frozen.insert(parameter.name);
  }
  const auto rest = std::ranges::stable_partition(held, [&](const auto& part) { return !frozen.contains(part.name); });
  return held.size() - rest.size();
}

}  // namespace

SupervisedStep::SupervisedStep(Task& task, SupervisedStepOptions options, parallel::Mesh& mesh)
    : task_(task),
      options_(std::move(options)),
      data_(mesh.batch()),
      world_(mesh.world()),
      sync_(options_.strategy->make({task.parameters(), tensors_of(task.buffers()), task.replicated_chain()}, mesh,
                                    options_.strategy_options)),
      late_(sync_->late_ends()),
      parameters_(sync_->held(task.parameters())),
      trained_(parameters_.begin(), parameters_.begin() + put_trained_first(parameters_, task.parameters())),
      update_(task, *sync_, trained_, late_ != nullptr ? mesh.world().beside() : mesh.world(),
              mesh.group(parallel::Axes::all() - parallel::kBatchAxes), update_options()) {
  detail::check_rows(task_.row_parameter() && options_.accumulate > 1,
                     "accumulate is " + std::to_string(options_.accumulate), "all micro-batches are known");
  if (late_ != nullptr) {
    check_staleness();
    task_.run_apart();
    endings_.emplace(mesh.world().beside());
  }
  const auto stages =
      mesh.size(parallel::Axis::pipeline) > 1 ? parallel::Axes{parallel::Axis::pipeline} : parallel::Axes();
  if (const auto axes = task_.summed_along() | task_.divided_along() | stages; !axes.empty()) {
    auto& group = mesh.group(axes);
    update_.sum_loss_over(late_ != nullptr && group.size() > 1 ? group.beside() : group);
  }
  passes_ = options_.passes ? options_.passes(task_, *sync_, trained_, mesh) : plain_passes();
  task_.set_training(true);
}

detail::UpdateOptions SupervisedStep::update_options() const {
  return {.optimizer = options_.optimizer,
          .clip = options_.clip,
          .ema = options_.ema,
          .in_order = options_.shards > 0,
          .loss_scale = options_.loss_scale,
          .ends_late = late_ != nullptr};
}

std::unique_ptr<Passes> SupervisedStep::plain_passes() {
  const auto rows = task_.row_parameter();
  const PlainPassesOptions options = {.accumulate = options_.accumulate,
                                      .shards = options_.shards,
                                      .shares = options_.strategy->shares(data_.size(), options_.strategy_options),
                                      .steps_in_backward = rows && rows->steps_in_backward};
  return std::make_unique<PlainPasses>(task_, *sync_, trained_, data_, options);
}

/// What a step changes before its end cannot wait for it.
void SupervisedStep::check_staleness() const {
  const auto option = "staleness is " + std::to_string(late_->staleness());
  detail::check_rows(task_.row_parameter().has_value(), option, "the end of the step");
  const auto refuse = [&](bool is_set, const std::string& what, const std::string& name) {
    if (is_set) throw SettingsError(option + " with " + what, "leave " + name + " or staleness out");
  };
  refuse(options_.loss_scale.has_value(), "a loss scale, which the next step needs", "the loss scale");
  refuse(update_.may_leave_out(), "steps that may be left out, of which later ones have begun", "skip_nonfinite");
}

void SupervisedStep::allow_skips(int64_t in_a_row) {
  update_.allow_skips(in_a_row);
  if (late_ != nullptr) check_staleness();
}

std::optional<Reading> SupervisedStep::run(const data::Batch& batch, int64_t step, double learning_rate) {
  task_.begin_step(step);
  if (late_ != nullptr) return begin_late(batch, step, learning_rate);
  detail::Update::Begun begun(update_, learning_rate);
  const auto shares = run_passes(batch, step, begun.numbers);
  return update_.end(begun, shares, step);
}

std::vector<double> SupervisedStep::run_passes(const data::Batch& batch, int64_t step, detail::StepNumbers& numbers) {
  if (options_.trace == nullptr) return passes_->run(batch, update_.scale(), numbers);
  options_.trace->begin_step(step);
  auto shares = [&] {
    const memory::BlockObserverScope scope(options_.trace);
    return passes_->run(batch, update_.scale(), numbers);
  }();
  options_.trace->end_step();
  return shares;
}

std::optional<Reading> SupervisedStep::begin_late(const data::Batch& batch, int64_t step, double learning_rate) {
  const auto begun = std::make_shared<detail::Update::Begun>(update_, learning_rate);
  const auto shares = passes_->run(batch, 1, begun->numbers);
  endings_->start([this, begun, shares, step] {
    late_->wait_for_gradients();
    return update_.end(*begun, shares, step);
  });
  return endings_->under_way() <= late_->staleness() ? std::nullopt : std::optional(endings_->wait_first());
}

std::optional<Reading> SupervisedStep::end_next() {
  if (!endings_ || endings_->under_way() == 0) return std::nullopt;
  return endings_->wait_first();
}

memory::Composition SupervisedStep::rehearse(const data::Batch& batch, memory::Account held) {
  held.add(Category::buffers, update_.bytes_of_copies());
  const detail::Update::Begun begun(update_, /*learning_rate=*/0.0);
  const auto step = passes_->rehearse(batch, held, [this](const auto& rows) { return update_.bytes(rows); });
  auto* rehearsal = sync_->rehearsal();
  const memory::Change meeting{rehearsal != nullptr ? rehearsal->memory().after_step : 0, Category::communication, 0};
  return highest_of(step, memory::compose({}, held, {&meeting, 1}));
}

std::vector<Step::Blocks> SupervisedStep::rehearse_blocks(const data::Batch& batch, bool in_parts) {
  const detail::Update::Begun begun(update_, /*learning_rate=*/0.0);
  return passes_->rehearse_blocks(batch, in_parts);
}

Step::Costs SupervisedStep::measure(const data::Batch& batch) {
  detail::Update::Begun begun(update_, /*learning_rate=*/0.0);
  Costs costs{.stages = passes_->measure(batch)};
  comm::barrier(world_);
  const auto start = std::chrono::steady_clock::now();
  update_.end(begun, {}, /*step=*/0);
  costs.update = seconds_since(start);
  return costs;
}

void SupervisedStep::settle() {
  update_.optimizer().settle();
  sync_->wait();
}

void SupervisedStep::unify() {
  settle();
  auto beside = update_.optimizer().state();
  if (const auto& average = update_.average()) {
    for (const auto& tensor : average->averages()) beside.push_back(tensor);
  }
  sync_->unify(beside);
}

void SupervisedStep::with_tested_weights(const std::function<void()>& body) {
  if (!update_.average()) return body();
  swap_weights();
  sync_->unify();
  body();
  swap_weights();
}

void SupervisedStep::swap_weights() {
  update_.average()->swap();
  sync_->values_replaced();
}

std::vector<Parameter> SupervisedStep::weights() const {
  auto tensors = parameters_;
  if (const auto& average = update_.average()) std::ranges::copy(average->averages(), tensors.begin());
  for (auto& buffer : task_.buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

std::vector<Parameter> SupervisedStep::state() const {
  auto tensors = weights();
  for (const auto& tensor : update_.optimizer().state()) tensors.push_back(tensor);
  if (const auto& average = update_.average()) {
    for (const auto& tensor : average->weights()) tensors.push_back(tensor);
  }
  for (const auto& tensor : sync_->state()) tensors.push_back(tensor);
  return tensors;
}

storage::Fields SupervisedStep::numbers() const {
  const auto& scale = update_.loss_scale();
  auto numbers = scale ? scale->numbers() : storage::Fields();
  if (options_.ema != 0) numbers.emplace_back(kEma, options_.ema);
  return numbers;
}

void SupervisedStep::set_numbers(const storage::Fields& numbers) {
  if (options_.ema == 0 && storage::find_value(numbers, kEma) != nullptr) {
    throw SettingsError("ema is 0 with a checkpoint of averages, wanted " +
                            std::to_string(storage::number(numbers, kEma)) + " as there",
                        "to train on from the averages, start another run with them as its weights");
  }
  sync_->values_replaced();
  update_.set_numbers(numbers);
}

/// nullopt: nothing is sent.
std::optional<double> SupervisedStep::hidden() const {
  if (data_.size() == 1) return std::nullopt;
  auto overlap = sync_->overlap();
  if (overlap.travelled == 0) return std::nullopt;
  if (endings_) overlap.waited += endings_->waited();
  return overlap.hidden();
}

Facts SupervisedStep::facts() const {
  Facts facts;
  if (const auto share = hidden()) facts.push_back({"hidden", *share});
  if (late_ != nullptr) {
    const auto [most, sum, steps] = late_->lag();
    facts.push_back({"most_lag", static_cast<double>(most), comm::Reduce::max});
    facts.push_back({"sum_of_lags", static_cast<double>(sum), comm::Reduce::sum});
    facts.push_back({"steps_with_lag", static_cast<double>(steps), comm::Reduce::sum});
  }
  if (const auto& scale = update_.loss_scale()) {
    facts.push_back({"loss_scale", scale->scale()});
    facts.push_back({"left_out_steps", static_cast<double>(scale->left_out())});
    if (!scale->is_dynamic()) facts.push_back({"loss_scale_is_constant", 1});
  }
  return facts;
}

Scores SupervisedStep::evaluate(data::Loader& loader, const Tick& tick, const Answered& answered) {
  Scores scores;
  with_tested_weights([&] { scores = train::evaluate(task_, loader, options_.num_classes, data_, tick, answered); });
  return scores;
}

}  // namespace tandem::train
