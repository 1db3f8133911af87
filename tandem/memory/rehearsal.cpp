#include "tandem/memory/rehearsal.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <span>

#include "tandem/base/context.h"
#include "tandem/base/seconds.h"
#include "tandem/memory/detail/saved_tensor_hooks.h"
#include "tandem/memory/detail/work_counter.h"
#include "tandem/memory/weight_work.h"

namespace tandem::memory {
namespace {

using Clock = std::chrono::steady_clock;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// How a tensor lies in memory.
struct TensorLayout {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;      // elements
  int64_t storage = 0;     // bytes
  size_t shares_with = 0;  // place of the first value of the flow in the same storage
  at::TensorOptions options;
  bool is_defined = false, requires_grad = false;
};
using TensorLayouts = std::vector<TensorLayout>;

TensorLayouts layouts_of(const std::vector<Tensor>& values) {
  TensorLayouts layouts(values.size());
  std::map<const void*, size_t> places;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& value = values[i];
    if (!value.defined()) continue;
    layouts[i] = {.sizes = value.sizes().vec(),
                  .strides = value.strides().vec(),
                  .offset = value.storage_offset(),
                  .storage = static_cast<int64_t>(value.storage().nbytes()),
                  .shares_with = places.emplace(value.storage().unsafeGetStorageImpl(), i).first->second,
                  .options = value.options(),
                  .is_defined = true,
                  .requires_grad = value.requires_grad()};
  }
  return layouts;
}

/// Zeros that lie in memory in the same way.
Flow zeros_like(const TensorLayouts& layouts) {
  const at::NoGradGuard no_grad;
  Flow values(layouts.size());
  for (size_t i = 0; i < layouts.size(); ++i) {
    const auto& layout = layouts[i];
    if (!layout.is_defined) continue;
    const auto elements = layout.storage / static_cast<int64_t>(layout.options.dtype().itemsize());
    auto base = layout.shares_with == i ? at::zeros({elements}, layout.options.requires_grad(false))
                                        : values[layout.shares_with];
    values[i] = at::empty({0}, base.options()).set_(base.storage(), layout.offset, layout.sizes, layout.strides);
  }
  return values;
}

std::vector<uint64_t> numbers_of(const std::vector<Tensor>& values) {
  std::vector<uint64_t> numbers;
  for (const auto& value : values) numbers.push_back(allocation_of(value));
  return numbers;
}

/// Stands for the block before: takes the gradients of a block's input.
struct Before : Node {
  Before(Flow& inputs, const TensorLayouts& of_inputs) : gradients(inputs.size()), numbers(inputs.size(), 0) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (of_inputs[i].requires_grad) places.push_back(i);
    }
  }

  variable_list apply(variable_list&& of_inputs) override {
    const auto layouts = layouts_of(of_inputs);
    for (size_t i = 0; i < places.size(); ++i) {
      gradients[places[i]] = layouts[i];
      gradients[places[i]].shares_with = places[layouts[i].shares_with];
      numbers[places[i]] = allocation_of(of_inputs[i]);
    }
    return {};
  }

  std::vector<size_t> places;  // of the values that require a gradient
  TensorLayouts gradients;
  std::vector<uint64_t> numbers;
};

/// Stands for the block behind: makes the gradients of a block's output.
struct Behind : Node {
  Behind(const Flow& outputs, const TensorLayouts& of_gradients) : layouts(of_gradients), numbers(outputs.size(), 0) {
    add_input_metadata(nothing());
    set_next_edges(torch::autograd::collect_next_edges(outputs));
  }

  /// Where backward starts: a tensor without memory.
  static Tensor nothing() { return at::empty({0}, at::kFloat); }

  variable_list apply(variable_list&&) override {
    auto gradients = zeros_like(layouts);
    numbers = numbers_of(gradients);
    return gradients;
  }

  TensorLayouts layouts;
  std::vector<uint64_t> numbers;
};

/// Gives parameters a gradient of zeros, and takes it back in the end.
class AddedTo {
 public:
  explicit AddedTo(std::span<const Tensor> parameters) : parameters_(parameters) {
    for (const auto& parameter : parameters) {
      gradients_.push_back(parameter.grad());
      parameter.mutable_grad() = at::zeros_like(parameter.detach());
    }
  }
  ~AddedTo() {
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
  }
  AddedTo(const AddedTo&) = delete;
  AddedTo& operator=(const AddedTo&) = delete;

 private:
  std::span<const Tensor> parameters_;
  std::vector<Tensor> gradients_;
};

/// Takes the buffers of a block and the gradients that are not added to away, and gives them back in the end.
class Untouched {
 public:
  explicit Untouched(const Block& block, std::span<const Tensor> added_to = {})
      : parameters_(parameters_of(block)), buffers_(buffers_of(block)) {
    std::erase_if(parameters_, [&](const Tensor& parameter) {
      return std::ranges::any_of(added_to, [&](const Tensor& one) { return one.is_same(parameter); });
    });
    for (auto& parameter : parameters_) {
      gradients_.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
    for (const auto& buffer : buffers_) copies_.push_back(buffer.clone());
  }
  ~Untouched() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
  }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

 private:
  std::vector<Tensor> parameters_, gradients_, buffers_, copies_;
};

/// Resets the gradients of some parameters when they are complete.
class GivenAway {
 public:
  explicit GivenAway(const std::vector<Tensor>& parameters) {
    for (const auto& parameter : parameters) {
      auto node = torch::autograd::impl::grad_accumulator(parameter);
      auto reset = [tensor = parameter.unsafeGetTensorImpl()](const variable_list& outputs, const variable_list&) {
        tensor->mutable_grad().reset();
        return outputs;
      };
      keys_.push_back(node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(reset)));
      nodes_.push_back(std::move(node));
    }
  }
  ~GivenAway() {
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i]->del_post_hook(keys_[i]);
  }
  GivenAway(const GivenAway&) = delete;
  GivenAway& operator=(const GivenAway&) = delete;

 private:
  std::vector<std::shared_ptr<Node>> nodes_;
  std::vector<uintptr_t> keys_;
};

template <class Work>
std::vector<Event> recorded(const ProbeScope& probe, const Work& work) {
  EventLog log(probe.number());
  work();
  return log.end();
}

/// One block of a chain, on inputs that lie in memory as `of_inputs` tells.
class BlockRehearsal {
 public:
  BlockRehearsal(const Block& block, const RehearsalOptions& options, BlockRecord& record)
      : block_(block),
        number_(block_number(block.name)),
        untouched_(block, options.added_to),
        work_(options.leaves_weights ? std::make_shared<WeightWork>() : nullptr),
        record_(record) {
    record.holds_root = !options.gives_gradients;
  }

  /// `of_gradients`: of its outputs; null for the last block, whose only output backward starts from. Returns the
  /// gradients of its inputs.
  TensorLayouts run(const TensorLayouts& of_inputs, const TensorLayouts* of_gradients) {
    const ProbeScope probe;
    const CategoryScope category(Category::activations);
    const BlockScope scope(number_);
    auto inputs = zeros_like(of_inputs);
    record_.inputs = numbers_of(inputs);
    auto before = std::make_shared<Before>(inputs, of_inputs);
    for (const auto place : before->places) torch::autograd::set_history(inputs[place], before);
    Flow outputs;
    std::shared_ptr<Behind> behind;
    record_.forward = recorded(probe, [&] {
      forward(inputs, outputs);
      record_.returned = live_in(probe) - bytes_of(record_.inputs, of_inputs);
      if (of_gradients != nullptr) {
        behind = std::make_shared<Behind>(outputs, *of_gradients);
        outputs.clear();
      }
      inputs.clear();
    });
    record_.backward = recorded(probe, [&] { backward(outputs, behind); });
    record_.output_gradients = behind ? behind->numbers : std::vector<uint64_t>{first_allocation(record_.backward)};
    record_.input_gradients = before->numbers;
    auto gradients = std::move(before->gradients);
    record_.end = recorded(probe, [&] {
      behind.reset();
      outputs.clear();
      before.reset();
    });
    if (work_) record_.weights = recorded(probe, [&] { work_->run(); });
    return gradients;
  }

 private:
  static int64_t live_in(const ProbeScope& probe) { return probe.account().live_bytes(); }

  static int64_t bytes_of(const std::vector<uint64_t>& numbers, const TensorLayouts& layouts) {
    int64_t bytes = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (layouts[i].shares_with == i && numbers[i] != 0) bytes += layouts[i].storage;
    }
    return bytes;
  }

  static uint64_t first_allocation(const std::vector<Event>& events) {
    for (const auto& event : events) {
      if (event.what == Event::What::allocate) return event.number;
    }
    return 0;
  }

  void forward(const Flow& inputs, Flow& outputs) {
    const WeightWorkScope later(work_);
    const auto start = Clock::now();
    outputs = block_.forward(inputs);
    record_.forward_seconds = seconds_since(start);
    record_.outputs = numbers_of(outputs);
    for (const auto& output : outputs) mark_backward(output, number_);
  }

  void backward(const Flow& outputs, const std::shared_ptr<Behind>& behind) {
    const PhaseScope phase(Phase::backward);
    const auto start = Clock::now();
    if (behind) {
      const bool has_graph =
          std::ranges::any_of(behind->next_edges(), [](const auto& edge) { return edge.is_valid(); });
      if (has_graph) {
        torch::autograd::Engine::get_default_engine().execute({{behind, 0}}, {Behind::nothing()}, /*keep_graph=*/false,
                                                              /*create_graph=*/false, /*accumulate_grad=*/true, {});
      }
    } else if (outputs.at(0).requires_grad()) {
      outputs[0].backward(at::ones_like(outputs[0]));
    }
    record_.backward_seconds = seconds_since(start);
  }

  const Block& block_;
  int number_;
  Untouched untouched_;
  std::shared_ptr<WeightWork> work_;  // null: backward leaves nothing
  BlockRecord& record_;
};

double allocated_in(std::span<const Event> events) {
  double bytes = 0;
  for (const auto& event : events) {
    if (event.what == Event::What::allocate) bytes += static_cast<double>(event.bytes);
  }
  return bytes;
}

/// Counts the work of a block's forward, all and up to the last tensor that an operation saves for backward.
class Work : detail::HookSource {
 public:
  explicit Work(const ProbeScope& probe) : log_(probe.number()), operations_(&counter_), hooks_(*this) {}

  /// Adds the work to a record; nothing may run after it.
  void end(BlockRecord& record) {
    const std::span<const Event> events = log_.end();
    record.nominal_seconds = detail::nominal_seconds(counter_.operations(), allocated_in(events));
    record.nominal_after_saved = detail::nominal_seconds(counter_.operations() - operations_at_save_,
                                                         allocated_in(events.subspan(events_at_save_)));
  }

 private:
  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override {
    operations_at_save_ = counter_.operations();
    events_at_save_ = log_.size();
    return nullptr;
  }

  EventLog log_;
  detail::WorkCounter counter_;
  const detail::OperationScope operations_;
  const detail::HookScope hooks_;
  double operations_at_save_ = 0;
  size_t events_at_save_ = 0;
};

/// What each block takes, and what the last one gives. Tells the work of each block in its record.
std::vector<TensorLayouts> flows_of(const Chain& chain, const Flow& input, std::vector<BlockRecord>& records) {
  const ProbeScope probe;
  const CategoryScope category(Category::activations);
  std::vector<TensorLayouts> flows = {layouts_of(input)};
  auto flow = input;
  for (size_t i = 0; i < records.size(); ++i) {
    const auto& block = chain.blocks[i];
    const Untouched untouched(block);
    auto outputs = [&] {
      Work work(probe);
      auto all = block.forward(flow);
      work.end(records[i]);
      return all;
    }();
    flows.push_back(layouts_of(outputs));
    for (auto& output : outputs) {
      const bool requires_grad = output.requires_grad();
      output = output.detach();
      output.requires_grad_(requires_grad);
    }
    flow = std::move(outputs);
  }
  return flows;
}

}  // namespace

std::vector<BlockRecord> only(std::vector<BlockRecord> records, Category category) {
  for (auto& record : records) {
    const std::array<std::vector<Event>*, 4> parts = {&record.forward, &record.backward, &record.end, &record.weights};
    std::map<uint64_t, Category> last;
    for (const auto* events : parts) {
      for (const auto& event : *events) {
        if (event.what != Event::What::free) last[event.number] = event.category;
      }
    }
    const auto is_other = [&](const Event& event) {
      const auto known = last.find(event.number);
      return known != last.end() && known->second != category;
    };
    for (auto* events : parts) std::erase_if(*events, is_other);
  }
  return records;
}

double BlockWork::nominal_seconds() const {
  constexpr double kProducts = 3, kPassesOfResults = 9, kPassesOfWeights = 5;
  return detail::nominal_seconds(kProducts * operations, kPassesOfResults * results + kPassesOfWeights * weights);
}

std::vector<BlockWork> work_of(const Chain& chain, Flow& flow) {
  const at::NoGradGuard no_grad;
  const auto bytes_of = [](const std::vector<Tensor>& tensors) {
    double bytes = 0;
    for (const auto& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
    return bytes;
  };
  std::vector<BlockWork> all;
  for (const auto& block : chain.blocks) {
    const Untouched untouched(block);
    detail::WorkCounter counter;
    const detail::OperationScope scope(&counter);
    flow = block.forward(flow);
    all.push_back({counter.operations(), bytes_of(flow), bytes_of(parameters_of(block))});
  }
  return all;
}

std::vector<BlockRecord> rehearse(const Chain& chain, const Flow& input, const RehearsalOptions& options) {
  TORCH_CHECK(meter_is_installed(), "chain: the memory meter is not installed, wanted install_meter() before");
  const at::AutoGradMode with_gradients(true);
  const ProbeScope aside;  // for copies of buffers
  const GivenAway given(options.given_away);
  const AddedTo added(options.added_to);
  std::vector<BlockRecord> records(chain.blocks.size());
  const auto flows = flows_of(chain, input, records);
  auto gradients = flows.back();
  bool is_loss = gradients.size() == 1 && !options.gives_gradients &&
                 (options.starts_at_output || gradients[0].sizes.empty());  // the last output
  for (size_t i = records.size(); i-- > 0;) {
    BlockRehearsal block(chain.blocks[i], options, records[i]);
    gradients = block.run(flows[i], is_loss ? nullptr : &gradients);
    is_loss = false;
  }
  return records;
}

}  // namespace tandem::memory
