#include "tests/train/faulty_training.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tandem/storage/file_io.h"
#include "tests/support/files.h"
#include "tests/train/classifier_task.h"

namespace tandem::train {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kTenSteps{40};  // about as long as ten steps of one rank

bool holds_records(const fs::path& folder) {
  std::error_code none;
  return fs::directory_iterator(folder, none) != fs::directory_iterator();
}

/// Goes wrong where and when the fault says.
class Misdeed {
 public:
  Misdeed(TrainingFault fault, fs::path folder, bool is_own, int turn)
      : fault_(std::move(fault)), folder_(std::move(folder)), is_own_(is_own), turn_(turn) {}

  /// Counted from 1. What runs on another thread may come a step later.
  void begin_step(int64_t step) {
    const bool is_saved = fault_.place == "save" || fault_.place == "write";
    turns_ = 0;
    is_due_ = is_own_ && (fault_.kind == "slow" || step >= (is_saved ? kFaultySave : kFaultyStep));
  }

  void at(std::string_view place) {
    if (is_due_ && place == fault_.place && turns_++ == turn_) happen();
  }

 private:
  void happen() const {
    test::spill(folder_ / "happened", fault_.kind);
    if (fault_.kind == "throw") throw DataError("image 'a.png' is not an image");
    if (fault_.kind == "kill") raise(SIGKILL);
    if (fault_.kind == "slow") std::this_thread::sleep_for(kTenSteps);
    if (fault_.kind != "late") return;
    for (int i = 0; i < 6000 && !holds_records(folder_ / "flight"); ++i) std::this_thread::sleep_for(milliseconds(10));
  }

  const TrainingFault fault_;
  const fs::path folder_;
  const bool is_own_;
  const int turn_;
  std::atomic<int> turns_ = 0;
  std::atomic<bool> is_due_ = false;
};

/// The middle block goes wrong, on its way forward or back, or what comes when backward is over.
class FaultyTask : public ClassifierTask {
 public:
  FaultyTask(Misdeed& misdeed, const FaultyForm& form, comm::ProcessGroup& group)
      : ClassifierTask(recipe_of(form, group.size()), group), misdeed_(misdeed) {
    auto& block = replicated_chain()->blocks.at(1);
    block.forward = [&misdeed, forward = block.forward](const memory::Flow& input) {
      misdeed.at("forward");
      auto output = forward(input);
      if (output[0].requires_grad()) output[0].register_hook([&misdeed](const Tensor&) { misdeed.at("backward"); });
      return output;
    };
  }

  void begin_step(int64_t step) override {
    ClassifierTask::begin_step(step);
    misdeed_.begin_step(step + 1);
  }

  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override {
    auto loss = ClassifierTask::loss(batch, sizes);
    loss.register_hook([this](const Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] { misdeed_.at("exchange"); });
    });
    return loss;
  }

 private:
  static Recipe recipe_of(const FaultyForm& form, int ranks) {
    Recipe recipe;
    recipe.head.dtype = at::kDouble;
    recipe.is_whole = form.ps.staleness > 0;
    recipe.head.counts = form.strategy->shares(ranks, {.ps = form.ps}).of(Patterns().num_classes());
    return recipe;
  }

  Misdeed& misdeed_;
};

class FaultyStep : public SupervisedStep {
 public:
  FaultyStep(Misdeed& misdeed, Task& task, SupervisedStepOptions options, parallel::Mesh& mesh)
      : SupervisedStep(task, std::move(options), mesh), misdeed_(misdeed) {}

  storage::Fields numbers() const override {
    misdeed_.at("save");
    return SupervisedStep::numbers();
  }

 private:
  Misdeed& misdeed_;
};

parallel::Aggregate faulty_sum(Misdeed& misdeed) {
  auto sum = parallel::aggregates().front();
  sum.of = [&misdeed, of = sum.of](const Tensor& gradients) {
    misdeed.at("server");
    return of(gradients);
  };
  return sum;
}

parallel::StrategyOptions faulty_options(const FaultyForm& form, Misdeed& misdeed, const parallel::Aggregate& sum) {
  parallel::StrategyOptions options;
  options.dp.replicas = kFaultyRanks;
  options.local_sgd.every = options.diloco.every = 1;
  options.ddp.after_sum = [&misdeed](std::string_view, const Tensor&) { misdeed.at("server"); };
  options.ps = form.ps;
  options.ps.aggregate = &sum;
  return options;
}

TrainerOptions trainer_options() {
  TrainerOptions options;
  options.steps = kFaultySteps;
  options.schedule = {.kind = ScheduleKind::constant, .lr = 0.05, .steps = kFaultySteps, .warmup = 0};
  options.checkpoint_every = 2;
  return options;
}

/// Which of the calls of a step goes wrong: replicas take turns.
int turn_of(const TrainingFault& fault, const FaultyForm& form) {
  const bool is_replicas = fault.place == "forward" || fault.place == "backward";
  return form.is_alone() && is_replicas ? fault.rank : 0;
}

}  // namespace

std::vector<FaultyForm> faulty_forms() {
  std::vector<FaultyForm> forms;
  for (const auto& strategy : parallel::strategies()) forms.push_back({std::string(strategy.name), &strategy});
  const auto& ps = parallel::strategy_of("ps");
  forms.push_back({"ps-apart", &ps, {.servers = 1, .servers_update = true}});
  forms.push_back({"ps-async", &ps, {.servers = 1, .servers_update = true, .staleness = 1}});
  return forms;
}

int faulty_world(const FaultyForm& form) { return form.is_alone() ? 1 : kFaultyRanks; }

comm::WorldOptions faulty_world_options(const TrainingFault& fault, const FaultyForm& form, const fs::path& folder) {
  comm::WorldOptions options;
  options.timeout = fault.kind == "late" ? milliseconds(2000) : milliseconds(60'000);
  options.threads = form.is_alone() ? kFaultyRanks : 1;
  options.flight_folder = folder / "flight";
  return options;
}

Outcome train_with_fault(const FaultyForm& form, const TrainingFault& fault, const fs::path& folder,
                         comm::ProcessGroup& group) {
  const Patterns patterns;
  const bool is_own = form.is_alone() || group.rank() == fault.rank;
  Misdeed misdeed(fault, folder, is_own, turn_of(fault, form));
  const auto sum = faulty_sum(misdeed);
  const auto options = faulty_options(form, misdeed, sum);
  FaultyTask task(misdeed, form, group);
  parallel::Mesh mesh(form.strategy->mesh(group.size(), options), group);
  FaultyStep step(misdeed, task, {.num_classes = 11, .strategy = form.strategy, .strategy_options = options}, mesh);
  if (fault.place == "write") {  // a process of its own
    storage::set_file_hook([&misdeed](std::string_view operation, const fs::path&) {
      if (operation == "write") misdeed.at("write");
    });
  }
  CheckpointStore store(folder / "checkpoints");
  const int idle = form.ps.servers;
  data::Loader loader(patterns, {.batch = 10, .rank = group.rank(), .size = group.size() - idle, .idle = idle});
  Trainer trainer(step, loader, nullptr, trainer_options(), &store, group);
  trainer.resume(store, std::nullopt);
  Observer nobody;
  return trainer.run(nobody);
}

}  // namespace tandem::train
