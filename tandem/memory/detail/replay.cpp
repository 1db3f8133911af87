#include "tandem/memory/detail/replay.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/nn/module.h>

namespace tandem::memory::detail {
namespace {

/// Holds the tensor: forward may run a backward of its own.
class ReplayHooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit ReplayHooks(Replay& replay) : replay_(replay) {}

  void call_pack_hook(const Tensor& tensor) override {
    value_ = alias_of(tensor);
    version_ = value_._version();
    replay_.add(tensor, value_);
  }

  Tensor call_unpack_hook() override {
    TORCH_CHECK(value_._version() == version_, "recompute: a saved tensor (", shape_text(value_), ") is at version ",
                value_._version(), ", wanted ", version_,
                ": it was changed in place after forward saved it; use an operation that is not in place");
    return value_;
  }

 private:
  Replay& replay_;  // only when the tensor is saved: a graph may outlive it
  Tensor value_;
  int64_t version_ = 0;
};

/// Buffers of modules keep their values, and the versions that forward leaves.
class BufferScope {
 public:
  explicit BufferScope(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
    for (const auto& module : modules) {
      for (auto& buffer : module->buffers()) buffers_.push_back(buffer);
    }
    for (const auto& buffer : buffers_) copies_.push_back(buffer.detach().clone());
  }
  ~BufferScope() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].variable_data().copy_(copies_[i]);
  }
  BufferScope(const BufferScope&) = delete;
  BufferScope& operator=(const BufferScope&) = delete;

 private:
  std::vector<Tensor> buffers_, copies_;
};

}  // namespace

Context holding(Context context) {
  if (context.has_new_images()) context.statistics = BatchStatistics::hold;
  return context;
}

Replay::Replay(Frame& frame, Frame::Values& values) : frame_(frame), values_(values) {
  for (int64_t slot = 0; slot < static_cast<int64_t>(frame.slots_.size()); ++slot) {
    if (frame.slots_[static_cast<size_t>(slot)].is_needed && !values.contains(slot)) last_ = slot;
  }
}

void Replay::run() {
  const auto inputs = frame_.inputs_again();  // may run an outer region
  const ContextScope context(holding(frame_.context_));
  const WeightWorkScope work(frame_.work_);
  std::optional<BufferScope> buffers;
  if (frame_.options_.restore_buffers) buffers.emplace(frame_.options_.modules);
  const GeneratorScope generators(frame_.generators_);
  const AutocastScope autocast(frame_.autocast_);
  const at::AutoGradMode with_gradients(true);
  const HookScope scope(*this);
  const bool is_restricted = frame_.is_default_generator_shared_;
  ReplayingSink sink(frame_.kept_, {.gives_away = !torch::autograd::get_current_graph_task_keep_graph(),
                                    .is_restricted = is_restricted,
                                    .where = frame_.where()});
  const OperationScope operations(is_restricted || !frame_.kept_.operations.empty() ? &sink : nullptr);
  OperationStop stop;
  stop_ = &stop;
  try {
    const auto forward = frame_.forward_;  // lives to the end of the call
    (*forward)(inputs);
  } catch (...) {
    if (failure_) std::rethrow_exception(failure_);
    if (has_stopped_) return;  // by OperationStop, or what forward made of it
    throw;
  }
  if (failure_) std::rethrow_exception(failure_);
  if (!has_stopped_) check_count();
}

std::unique_ptr<torch::autograd::SavedVariableHooks> Replay::make_hooks() {
  return std::make_unique<ReplayHooks>(*this);
}

void Replay::add(const Tensor& saved, const Tensor& value) {
  if (has_stopped_) return;
  const int64_t slot = saved_++;
  if (slot >= static_cast<int64_t>(frame_.slots_.size())) return;  // check_count() tells
  try {
    check(slot, saved);
  } catch (...) {
    failure_ = std::current_exception();
    has_stopped_ = true;
    throw;
  }
  if (frame_.slots_[static_cast<size_t>(slot)].is_needed) {
    values_.try_emplace(slot, Frame::Value{value, static_cast<uint32_t>(value._version())});
  }
  // A backward inside forward needs what forward has saved so far, and forward must not come to that backward again.
  if (slot == last_ && (frame_.options_.stop_early || frame_.is_running_)) {
    has_stopped_ = true;
    stop_->request();
    // An exception here would leave a custom function that holds its own output, and both would never be freed.
    if (!frame_.is_running_ && !frame_.weights_.have_custom_functions()) throw OperationStop::Stopped();
  }
}

void Replay::check(int64_t slot, const Tensor& saved) {
  const auto& [trace, is_held, is_needed] = frame_.slots_[static_cast<size_t>(slot)];
  const auto count = frame_.slots_.size();
  TORCH_CHECK(trace.has_shape_of(saved), frame_.where(), "saved tensor ", slot + 1, " of ", count, " is ",
              shape_text(saved), " when forward runs again, wanted ", trace.text(),
              ": forward must do the same each time");
  TORCH_CHECK(!is_needed || trace.has_values_of(saved, frame_.options_.values), frame_.where(), "saved tensor ",
              slot + 1, " of ", count, " (", trace.text(),
              ") has other values when forward runs again, wanted the same bits: forward must compute from its inputs, "
              "constant tensors and generators that the options name");
}

void Replay::check_count() const {
  TORCH_CHECK(saved_ == static_cast<int64_t>(frame_.slots_.size()), frame_.where(), "forward saves ", saved_,
              " tensors when it runs again, wanted ", frame_.slots_.size(), ": forward must do the same each time");
}

}  // namespace tandem::memory::detail
