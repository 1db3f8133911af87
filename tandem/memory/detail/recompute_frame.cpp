#include "tandem/memory/detail/recompute_frame.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "tandem/memory/detail/replay.h"
#include "tandem/memory/detail/saved_tensor_hooks.h"

namespace tandem::memory::detail {
namespace {

using torch::autograd::Engine;

/// Holds parameters, and drops everything else that an operation saves.
class Hooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  ~Hooks() override {
    if (slot_ >= 0) frame_->release(slot_);
  }

  void call_pack_hook(const Tensor& tensor) override {
    const bool is_parameter = tensor.is_leaf() && tensor.requires_grad();
    if (is_parameter) held_ = alias_of(tensor);
    slot_ = frame_->add(tensor, is_parameter);
  }

  Tensor call_unpack_hook() override {
    if (!held_.defined()) return frame_->value_of(slot_);
    frame_->check_version(slot_);
    return held_;
  }

 private:
  std::shared_ptr<Frame> frame_;
  int64_t slot_ = -1;
  Tensor held_;
};

class Source : public HookSource {
 public:
  explicit Source(const std::shared_ptr<Frame>& frame) : frame_(frame) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override { return std::make_unique<Hooks>(frame_); }

 private:
  const std::shared_ptr<Frame>& frame_;
};

}  // namespace

Frame::Frame(const Forward& forward, const Flow& inputs, const RecomputeOptions& options)
    : forward_(std::make_shared<const Forward>(forward)),
      options_(options),
      context_(current_context()),
      autocast_(AutocastSettings::now()) {
  if (options_.name.empty()) options_.name = block_name(context_.block);
  const ExactScope exact;
  for (const auto& input : inputs) {
    auto& own = inputs_.emplace_back();
    if (!input.defined()) continue;
    // Detached: an input that forward changes in place becomes part of the graph, and would own its own frame.
    own.emplace(Input{torch::autograd::SavedVariable(alias_of(input), /*is_output=*/false),
                      TensorTrace(input, ValueCheck::none), input.requires_grad()});
  }
}

Flow Frame::run(const Flow& inputs) {
  std::vector<GeneratorState> generators;
  for (const auto& generator : default_generators(inputs)) generators.emplace_back(generator);
  for (const auto& generator : options_.generators) generators.emplace_back(generator);
  const auto first_node = at::sequence_number::peek();
  const auto self = shared_from_this();
  Source source(self);
  is_running_ = true;
  Flow outputs;
  {
    const HookScope scope(source);
    KeepingSink sink(options_.keep, kept_);
    const OperationScope operations(options_.keep ? &sink : nullptr);
    outputs = (*forward_)(inputs);
  }
  const std::lock_guard lock(mutex_);
  is_running_ = false;
  if (needed_ == 0) {
    inputs_.clear();
    forward_.reset();
    kept_ = {};
    return outputs;
  }
  weights_.watch(inputs, outputs, first_node, options_.modules);
  keep_moved(std::move(generators));
  check_inputs_and_weights();
  return outputs;
}

void Frame::keep_moved(std::vector<GeneratorState> states) {
  for (auto& state : states) {
    if (!state.has_moved()) continue;
    if (is_thread_rank() && state.is_default_of_cpu()) {
      is_default_generator_shared_ = true;
    } else {
      generators_.push_back(std::move(state));
    }
  }
}

int64_t Frame::add(const Tensor& tensor, bool is_held) {
  const std::lock_guard lock(mutex_);
  slots_.push_back({TensorTrace(tensor, is_held ? ValueCheck::none : options_.values), is_held, !is_held});
  if (!is_held) ++needed_;
  return static_cast<int64_t>(slots_.size()) - 1;
}

void Frame::check_version(int64_t slot) {
  const std::lock_guard lock(mutex_);
  const auto& [trace, is_held, is_needed] = slots_[static_cast<size_t>(slot)];
  TORCH_CHECK(!trace.is_changed(), where(), is_held ? "weight" : "saved tensor", " ", slot + 1, " of ", slots_.size(),
              " (", trace.text(), ") is at ", trace.versions(),
              is_held ? ": it was changed after forward saved it; change weights after backward"
                      : ": it was changed in place after forward saved it; use an operation that is not in place");
}

Tensor Frame::value_of(int64_t slot) {
  const std::lock_guard lock(mutex_);
  check_version(slot);
  const int64_t task = torch::autograd::get_current_graph_task_id();  // -1: outside backward
  auto& values = values_[task];
  if (!values.contains(slot)) replay(task, values);
  const auto found = values.find(slot);
  TORCH_INTERNAL_ASSERT(found != values.end());
  auto [tensor, version] = found->second;
  TORCH_CHECK(tensor._version() == version, where(), "saved tensor ", slot + 1, " of ", slots_.size(), " (",
              shape_text(tensor), ") is at version ", tensor._version(), " in backward, wanted ", version,
              ": forward changes it in place when it runs again; it must do the same each time");
  // The node keeps its hooks, and they would keep the tensor.
  if (torch::autograd::get_current_graph_task_keep_graph()) values.erase(found);
  if (task < 0) values_.erase(task);
  return tensor;
}

void Frame::release(int64_t slot) {
  std::vector<std::optional<Input>> inputs;
  std::shared_ptr<const Forward> forward;
  KeptResults kept;
  const std::lock_guard lock(mutex_);
  auto& own = slots_[static_cast<size_t>(slot)];
  if (own.is_held) return;
  own.is_needed = false;
  for (auto& [task, values] : values_) values.erase(slot);
  if (--needed_ > 0 || is_running_) return;
  inputs.swap(inputs_);
  forward.swap(forward_);
  std::swap(kept, kept_);
}

void Frame::forget(int64_t task) {
  const std::lock_guard lock(mutex_);
  values_.erase(task);
}

void Frame::replay(int64_t task, Values& values) {
  if (task >= 0) {
    Engine::get_default_engine().queue_callback([frame = weak_from_this(), task] {
      if (const auto self = frame.lock()) self->forget(task);
    });
  }
  check_inputs_and_weights();
  try {
    Replay(*this, values).run();
    check_inputs_and_weights();
  } catch (...) {
    values.clear();
    throw;
  }
}

void Frame::check_inputs_and_weights() const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto& input = inputs_[i];
    TORCH_CHECK(!input || !input->trace.is_changed(), where(), "input ", i, " (", input->trace.text(), ") is at ",
                input->trace.versions(), ": it was changed in place since forward began; change a clone of it");
  }
  weights_.check(where());
}

Flow Frame::inputs_again() const {
  Flow again(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i]) continue;
    again[i] = alias_of(inputs_[i]->value.unpack());
    again[i].set_requires_grad(inputs_[i]->requires_grad);
  }
  return again;
}

std::string Frame::where() const {
  return options_.name.empty() ? "recompute: " : "recompute[" + options_.name + "]: ";
}

}  // namespace tandem::memory::detail
