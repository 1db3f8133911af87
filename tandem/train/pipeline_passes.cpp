#include "tandem/train/pipeline_passes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>

#include "tandem/memory/block_runner.h"
#include "tandem/memory/channel_statistics.h"
#include "tandem/memory/meter.h"
#include "tandem/pipeline/measure.h"
#include "tandem/train/divided_head.h"

namespace tandem::train {
namespace {

using parallel::Axis;

/// The stages that a rank holds, in one step.
class StepStages : public pipeline::Stages {
 public:
  /// `head`: null if the last stage has it. `sync`: is told of each stage whose gradients are complete; null: nobody.
  StepStages(Task& task, const std::vector<BatchPart>& parts, std::vector<int> stages, double scale,
             std::vector<Tensor> rooms, std::unique_ptr<DividedHead> head, parallel::GradientSync* sync)
      : task_(task),
        parts_(parts),
        stages_(std::move(stages)),
        scale_(scale),
        rooms_(std::move(rooms)),
        head_(std::move(head)),
        sync_(sync) {}

  memory::Chain chain(int stage, int micro_batch) override {
    const auto& part = parts_[micro_batch];
    const auto own = std::ranges::find(stages_, stage) - stages_.begin();
    return task_.stages(part.batch, part.sizes).at(static_cast<size_t>(own));
  }

  memory::Flow input(int micro_batch) override { return {parts_[micro_batch].batch.images}; }

  void end_forward(int micro_batch, const memory::Flow& output) override {
    head_ ? head_->end_forward(micro_batch, output[0]) : take_loss(micro_batch, output[0]);
  }

  std::vector<comm::Handle> run_head(const pipeline::Action& action) override {
    auto handles = head_->run(action);
    if (action.what == pipeline::What::receive_scores) take_loss(action.micro_batch, head_->loss(action.micro_batch));
    return handles;
  }

  Tensor begin_backward(int micro_batch, const Tensor& loss) override {
    return head_ ? head_->take_gradient(micro_batch) : start_of_backward(loss, parts_[micro_batch], scale_);
  }

  Context context_of(int micro_batch) override { return train::context_of(parts_[micro_batch]); }

  void end_backward(int stage) override {
    if (sync_ == nullptr) return;
    std::vector<Tensor> parameters;
    for (const auto& block : chain(stage, 0).blocks) {
      const auto own = memory::parameters_of(block);
      parameters.insert(parameters.end(), own.begin(), own.end());
    }
    sync_->start_to_take(parameters);
  }

 private:
  void take_loss(int micro_batch, const Tensor& loss) {
    auto& room = rooms_[micro_batch];
    TORCH_INTERNAL_ASSERT(loss.numel() == room.numel(), "a step's loss has ", loss.numel(), " numbers");
    room.copy_(loss.reshape({-1}));
  }

  Task& task_;
  const std::vector<BatchPart>& parts_;
  std::vector<int> stages_;
  double scale_;
  std::vector<Tensor> rooms_;  // for the terms of the loss, of each micro-batch
  std::unique_ptr<DividedHead> head_;
  parallel::GradientSync* sync_;
};

/// What comes from the stage before, as a block: a leaf of the graph until the graph goes, whose gradient is sent.
memory::BlockRecord received(const memory::Flow& flow) {
  memory::BlockRecord record;
  const auto count = static_cast<uint64_t>(flow.size());
  using What = memory::Event::What;
  for (uint64_t i = 0; i < count; ++i) {
    const auto bytes = static_cast<int64_t>(flow[i].nbytes());
    const uint64_t value = i + 1, gradient = count + i + 1;
    const auto event = [&](What what, uint64_t number) {
      return memory::Event{.number = number, .bytes = bytes, .category = Category::activations, .what = what};
    };
    record.forward.push_back(event(What::allocate, value));
    record.backward.push_back(event(What::free, gradient));
    record.end.push_back(event(What::free, value));
    record.outputs.push_back(value);
    record.output_gradients.push_back(gradient);
  }
  return record;
}

/// Gives a parameter another gradient while it lives.
class GradientInstead {
 public:
  GradientInstead(Tensor parameter, Tensor gradient)
      : parameter_(std::move(parameter)), before_(std::exchange(parameter_.mutable_grad(), std::move(gradient))) {}
  ~GradientInstead() { parameter_.mutable_grad() = before_; }
  GradientInstead(const GradientInstead&) = delete;
  GradientInstead& operator=(const GradientInstead&) = delete;

 private:
  Tensor parameter_, before_;
};

/// What a divided classifier allocates on this rank, as a block: forward scores, backward makes the features' gradient,
/// where the last stage is, and its weights' gradient comes later.
class HeadRehearsal {
 public:
  HeadRehearsal(DividedHead& head, bool has_last_stage, int rank)
      : head_(head), has_last_stage_(has_last_stage), rank_(rank) {}

  /// `adds`: its gradient is there already.
  memory::BlockRecord run(int micro_batch, bool adds) {
    using pipeline::What;
    const memory::ProbeScope probe;
    const GradientInstead gradient(head_.weight(), adds ? at::zeros_like(head_.weight()) : Tensor());
    const auto record = [&](const std::vector<What>& some) {
      memory::EventLog log(probe.number());
      for (const auto what : some) head_.run({what, rank_, micro_batch});
      return log.end();
    };
    memory::BlockRecord all{.holds_root = false};
    Tensor of_features;
    if (has_last_stage_) {
      auto features = head_.features_like(micro_batch);
      all.inputs = {memory::allocation_of(features)};
      head_.end_forward(micro_batch, features);
      features.reset();
      all.forward = record({What::send_features, What::scores});
      {
        memory::EventLog log(probe.number());
        for (const auto what : {What::receive_scores, What::send_totals}) head_.run({what, rank_, micro_batch});
        of_features = head_.take_gradient(micro_batch);
        all.backward = log.end();
      }
      all.input_gradients = {memory::allocation_of(of_features)};
      all.weights = record({What::class_gradient});
    } else {
      all.forward = record({What::receive_features, What::scores, What::send_scores});
      all.weights = record({What::receive_totals, What::class_gradient});
    }
    return all;
  }

 private:
  DividedHead& head_;
  bool has_last_stage_;
  int rank_;
};

bool has_late_weights(const pipeline::Program& program, int rank, int stage, int micro_batch) {
  const pipeline::Action late = {pipeline::What::weight_gradient, stage, micro_batch};
  return std::ranges::find(program.lists[rank], late) != program.lists[rank].end();
}

/// What the blocks of a rank's stages allocate. Stages that follow each other on the rank hand their values on: their
/// blocks are one chain.
class StageRecords {
 public:
  /// `head`: null if the last stage has it.
  StageRecords(Task& task, const pipeline::Program& program, int rank, DividedHead* head)
      : task_(task), program_(program), rank_(rank), stages_(program.stages_of(rank)), head_(head) {
    for (size_t i = 0; i < stages_.size(); ++i) {
      const bool follows = i > 0 && stages_[i - 1] + 1 == stages_[i];
      if (follows) {
        runs_.back().push_back(i);
      } else {
        runs_.push_back({i});
      }
    }
  }

  /// `gradients`: which backward allocates in the first micro-batch, and adds to in the others; those of `elsewhere`
  /// are given away.
  void rehearse(const std::vector<BatchPart>& parts, const std::vector<Tensor>& gradients,
                const std::vector<Tensor>& elsewhere) {
    for (const auto& run : runs_) {
      Known known;
      for (int k = 0; k < program_.micro_batches; ++k) {
        const auto& part = parts[k];
        const bool adds = k > 0, leaves = has_late_weights(program_, rank_, stages_[run.back()], k);
        if (add_known(known, part, adds, leaves)) continue;
        const bool is_last = stages_[run.back()] + 1 == program_.num_stages(), has_loss = is_last && head_ == nullptr;
        memory::RehearsalOptions options = {.given_away = elsewhere,
                                            .starts_at_output = has_loss,
                                            .gives_gradients = !has_loss,
                                            .leaves_weights = leaves};
        if (adds) options.added_to = gradients;
        all_.push_back(rehearse(run, part, options));
        if (is_last && head_ != nullptr) all_.back().push_back(HeadRehearsal(*head_, true, rank_).run(k, adds));
      }
    }
    if (head_ != nullptr && rank_ != program_.home()) rehearse_head(parts);
  }

  /// Of each run: of each micro-batch.
  std::span<const std::vector<memory::BlockRecord>> all() const { return all_; }

  /// The program's order of the blocks.
  std::vector<memory::Action> order() const {
    using What = memory::Action::What;
    std::vector<memory::Action> order;
    for (const auto& action : program_.lists[rank_]) {
      const auto& [what, stage, micro_batch] = action;
      if (is_of_head(what)) add_of_head(action, order);
      if (is_message(what) || is_of_head(what)) continue;
      const auto [run, first, last] = blocks_of(stage);
      const size_t place = run * static_cast<size_t>(program_.micro_batches) + static_cast<size_t>(micro_batch);
      const auto add_all = [&](What kind) {
        for (size_t i = last; i-- > first;) order.push_back({kind, i, place});
      };
      if (what == pipeline::What::forward) {
        for (size_t i = first; i < last; ++i) order.push_back({What::forward, i, place});
      } else if (what == pipeline::What::weight_gradient) {
        add_all(What::weights);
      } else {
        add_all(What::backward);
        add_all(What::end);
      }
    }
    return order;
  }

 private:
  using Run = std::vector<size_t>;                                           // places in stages_
  using Known = std::map<std::tuple<int64_t, int64_t, bool, bool>, size_t>;  // places in all_

  /// Whether the same is there, which stands for this one, too.
  bool add_known(Known& known, const BatchPart& part, bool adds, bool leaves) {
    const auto [at, is_new] =
        known.try_emplace({part.batch.images.size(0), part.batch.global_size, adds, leaves}, all_.size());
    if (!is_new) all_.push_back(std::vector(all_[at->second]));
    return !is_new;
  }

  /// Where the last stage is not.
  void rehearse_head(const std::vector<BatchPart>& parts) {
    Known known;
    for (int k = 0; k < program_.micro_batches; ++k) {
      const bool adds = k > 0;
      if (!add_known(known, parts[k], adds, false)) all_.push_back({HeadRehearsal(*head_, false, rank_).run(k, adds)});
    }
  }

  void add_of_head(const pipeline::Action& action, std::vector<memory::Action>& order) const {
    using What = memory::Action::What;
    const bool has_last = rank_ == program_.home();
    const size_t run = has_last ? blocks_of(program_.num_stages() - 1).run : runs_.size();
    const size_t place = run * static_cast<size_t>(program_.micro_batches) + static_cast<size_t>(action.micro_batch);
    const size_t block = all_[place].size() - 1;
    if (action.what == pipeline::What::scores) order.push_back({What::forward, block, place});
    if (action.what == pipeline::What::receive_scores) order.push_back({What::backward, block, place});
    if (action.what == pipeline::What::class_gradient) order.push_back({What::weights, block, place});
  }

  /// Also notes how many blocks each stage has.
  std::vector<memory::BlockRecord> rehearse(const Run& run, const BatchPart& part,
                                            const memory::RehearsalOptions& options) {
    const auto chains = task_.stages(part.batch, part.sizes);
    const auto input = task_.stage_inputs(part.batch)[run.front()];
    memory::Chain chain;
    for (const auto i : run) {
      const auto own = memory::by_runners(chains[i]);
      chain.blocks.insert(chain.blocks.end(), own.blocks.begin(), own.blocks.end());
      num_blocks_[stages_[i]] = own.blocks.size();
    }
    auto records = memory::rehearse(chain, input, options);
    const int first = stages_[run.front()];
    if (first == 0) return records;
    records.insert(records.begin(), received(input));
    num_blocks_[first] += 1;
    return records;
  }

  struct Blocks {
    size_t run, first, last;
  };
  Blocks blocks_of(int stage) const {
    for (size_t run = 0; run < runs_.size(); ++run) {
      size_t first = 0;
      for (const auto i : runs_[run]) {
        const size_t last = first + num_blocks_.at(stages_[i]);
        if (stages_[i] == stage) return {run, first, last};
        first = last;
      }
    }
    TORCH_INTERNAL_ASSERT(false, "stage ", stage, " is not here");
  }

  Task& task_;
  const pipeline::Program& program_;
  int rank_;
  std::vector<int> stages_;
  DividedHead* head_;
  std::vector<Run> runs_;
  std::map<int, size_t> num_blocks_;  // of a stage, with what it receives
  std::vector<std::vector<memory::BlockRecord>> all_;
};

/// For the terms of the loss, of each micro-batch.
std::vector<Tensor> rooms_for(const std::vector<BatchPart>& parts, detail::StepNumbers& numbers) {
  std::vector<Tensor> rooms;
  for (const auto& part : parts) rooms.push_back(numbers.add(static_cast<int64_t>(part.shares.size())));
  return rooms;
}

/// A backward that is not the last.
constexpr parallel::MicroBatch kEarlier = {.index = 0, .count = 2};

}  // namespace

PipelinePasses::PipelinePasses(Task& task, parallel::GradientSync& sync, const std::vector<Parameter>& trained,
                               parallel::Mesh& mesh, PipelinePassesOptions options)
    : task_(task), sync_(sync), trained_(trained), mesh_(mesh), options_(std::move(options)) {}

PipelinePasses::~PipelinePasses() = default;

pipeline::Executor& PipelinePasses::executor_for(size_t micro_batches) {
  auto& executor = executors_[micro_batches];
  if (executor == nullptr) {
    executor = std::make_unique<pipeline::Executor>(options_.program(static_cast<int>(micro_batches)),
                                                    mesh_.group(Axis::pipeline));
  }
  return *executor;
}

std::vector<BatchPart> PipelinePasses::parts_of(const data::Batch& batch) const {
  return cut(batch, options_.accumulate, options_.shares.of(batch.global_size), mesh_.batch().rank());
}

std::vector<double> PipelinePasses::run(const data::Batch& batch, double scale, detail::StepNumbers& numbers) {
  const auto parts = parts_of(batch);
  auto& executor = executor_for(parts.size());
  std::vector<double> shares;
  for (const auto& part : parts) shares.insert(shares.end(), part.shares.begin(), part.shares.end());
  sync_.before_forward(kEarlier);
  sync_.before_backward({}, kEarlier);
  StepStages stages(task_, parts, executor.program().stages_of(mesh_.coordinate(Axis::pipeline)), scale,
                    rooms_for(parts, numbers), task_.divided_head(parts, scale, /*is_imagined=*/false), &sync_);
  memory::StatisticsBook book;
  {
    const ContextScope scope(parts.size() > 1 ? memory::deferring(book) : current_context());
    timeline_.clear();
    executor.run(stages, &timeline_);
  }
  book.commit();
  sync_.after_backward(kEarlier);
  sync_.take_gradients();
  return shares;
}

memory::Composition PipelinePasses::rehearse(const data::Batch& batch, memory::Account held, const Update& update) {
  const auto parts = parts_of(batch);
  const auto program = options_.program(static_cast<int>(parts.size()));
  const auto sync = memory_of(sync_);
  std::vector<memory::Change> changes;
  if (sync.exchange > 0) changes.push_back({sync.exchange, Category::communication, 0});
  held.add(Category::communication, sync.beside);

  const auto allocated = allocated_gradients(trained_, task_, sync);
  const auto head = task_.divided_head(parts, /*scale=*/1, /*is_imagined=*/true);
  StageRecords records(task_, program, mesh_.coordinate(Axis::pipeline), head.get());
  {
    const RunAloneScope alone(sync_);
    records.rehearse(parts, allocated.whole, sync.owned_gradients);
  }
  reset_gradients(allocated.parts);
  for (const auto& change : update(std::vector<int64_t>(trained_.size(), 0))) changes.push_back(change);
  return memory::compose(records.all(), records.order(), held, changes);
}

std::vector<pipeline::StageCost> PipelinePasses::measure(const data::Batch& batch) {
  const auto parts = parts_of(batch);
  const auto& program = executor_for(parts.size()).program();
  const int coordinate = mesh_.coordinate(Axis::pipeline);
  const auto own = program.stages_of(coordinate);
  detail::StepNumbers numbers(c10::kCPU);
  StepStages stages(task_, parts, own, /*scale=*/1, rooms_for(parts, numbers), /*head=*/nullptr, /*sync=*/nullptr);
  const auto input = [&](int stage, int micro_batch) {
    const auto place = std::ranges::find(own, stage) - own.begin();
    return task_.stage_inputs(parts[micro_batch].batch)[static_cast<size_t>(place)];
  };
  auto costs = measure_stages(program, coordinate, stages, input);
  sync_.take_gradients();
  return costs;
}

/// Of the first micro-batch, as if its gradients were those of the whole step.
std::vector<Step::Blocks> PipelinePasses::rehearse_blocks(const data::Batch& batch, bool in_parts) {
  const auto part = parts_of(batch).front();
  const auto program = options_.program(static_cast<int>(options_.accumulate));
  const auto own = program.stages_of(mesh_.coordinate(Axis::pipeline));
  const auto chains = task_.stages(part.batch, part.sizes);
  const auto inputs = task_.stage_inputs(part.batch);
  std::vector<Step::Blocks> all;
  const RunAloneScope alone(sync_);
  for (size_t i = 0; i < chains.size(); ++i) {
    const bool has_loss = own[i] + 1 == program.num_stages() && !program.divides_head();
    Step::Blocks blocks{in_parts ? memory::in_parts(chains[i]) : chains[i], {}};
    blocks.records =
        memory::rehearse(blocks.chain, inputs[i], {.starts_at_output = has_loss, .gives_gradients = !has_loss});
    all.push_back(std::move(blocks));
  }
  reset_gradients(allocated_gradients(trained_, task_, memory_of(sync_)).parts);
  return all;
}

}  // namespace tandem::train
