#include "tests/train/split_task.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include "tandem/base/rng.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/region.h"
#include "tandem/comm/split.h"

namespace tandem::train {
namespace {

using parallel::Axis;

constexpr int64_t kInput = 9, kHidden = 7, kOutput = 3;

/// Holds the tensors of a layer, as a block wants them.
std::shared_ptr<torch::nn::Module> module_of(const std::vector<Parameter>& parameters) {
  auto module = std::make_shared<torch::nn::Module>("Layer");
  for (size_t i = 0; i < parameters.size(); ++i) {
    module->register_parameter("p" + std::to_string(i), parameters[i].tensor);
  }
  return module;
}

}  // namespace

SplitTask::SplitTask(parallel::Mesh& mesh) : mesh_(mesh) {
  if (mesh.coordinate(Axis::pipeline) == 0) add_column();
  if (mesh.coordinate(Axis::pipeline) + 1 == mesh.size(Axis::pipeline)) add_row();
  for (const auto& parameter : parameters_) parameter.tensor.set_requires_grad(true);
}

void SplitTask::add_column() {
  parameters_.push_back(part("column.weight", {kHidden, kInput}, 0, 0));
  buffers_.push_back(part("column.seen", {kHidden}, 0, 0));
  buffers_[0].tensor.zero_();
  const auto weight = parameters_.back();
  chain_.blocks.push_back(
      memory::make_block("column", {module_of({weight})}, [this, weight = weight.tensor](const Tensor& x) {
        const auto hidden = comm::copy_to_region(x, mesh_.group(Axis::tensor)).matmul(weight.t()).tanh();
        see(hidden.detach());
        return hidden;
      }));
}

void SplitTask::add_row() {
  const int last = mesh_.size(Axis::pipeline) - 1;
  const auto weight = part("row.weight", {kOutput, kHidden}, 1, last), bias = part("row.bias", {kOutput}, {}, last);
  parameters_.insert(parameters_.end(), {weight, bias});
  chain_.blocks.push_back(memory::make_block(
      "row", {module_of({weight, bias})}, [this, weight = weight.tensor, bias = bias.tensor](const Tensor& hidden) {
        return comm::reduce_from_region(hidden.matmul(weight.t()), mesh_.group(Axis::tensor)) + bias;
      }));
}

Parameter SplitTask::part(const std::string& name, at::IntArrayRef sizes, std::optional<int64_t> dim, int stage) const {
  std::vector<parallel::Mesh::Cut> cuts;
  if (dim) cuts.push_back({.dim = *dim, .axis = Axis::tensor});
  const auto placement = mesh_.place(sizes, cuts, parallel::Mesh::Only{Axis::pipeline, {stage}});
  auto held = sizes.vec();
  for (const auto& split : placement.splits) held[split.dim] = split.count;
  const auto tensor = at::empty(held, at::kDouble);
  fill_normal_(tensor, 0.4, 7, stream_of(name), placement.box(held), sizes);
  return Parameter::placed(name, tensor, placement);
}

void SplitTask::see(const Tensor& hidden) {
  if (!is_training_) return;
  auto sums = at::cat({hidden.sum(0), at::full({1}, hidden.size(0), at::kDouble)});
  comm::all_reduce_(sums, mesh_.batch());
  const int64_t units = hidden.size(1);
  buffers_[0].tensor.mul_(0.9).add_(sums.narrow(0, 0, units) / sums[units], 0.1);
}

Tensor SplitTask::embed(const data::Batch& batch) { return forward(input_of(batch)); }

SplitTask::Loss SplitTask::loss_of(const Tensor& output, const data::Batch& batch) const {
  const auto target = at::one_hot(batch.labels, kOutput).to(at::kDouble);
  const auto own = (output - target).square().sum() / static_cast<double>(batch.global_size);
  return {own, comm::reduce_number(own.item<double>(), comm::Reduce::sum, mesh_.batch())};
}

Tensor SplitTask::loss(const data::Batch& batch, std::span<const int64_t>) {
  const auto [own, value] = loss_of(embed(batch), batch);
  return own + (value - own.detach());
}

Task::Answers SplitTask::evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) {
  const auto [scores, classes] = embed(batch).topk(k, 1);
  return {{classes, scores}, loss(batch, sizes)};
}

data::Batch SplitTask::batch(int64_t step, int64_t size) const {
  auto& group = mesh_.batch();
  const auto [begin, end] = comm::split_range(size, group.size(), group.rank());
  auto images = at::empty({size, 1, 3, 3}, at::kFloat);
  fill_normal_(images, 1, 11, static_cast<uint64_t>(step));
  return {.images = images.slice(0, begin, end),
          .labels = at::arange(begin, end, at::kLong) % kOutput,
          .global_size = size,
          .first_sample = step * size + begin};
}

Tensor input_of(const data::Batch& batch) { return batch.images.flatten(1).to(at::kDouble); }

namespace {

/// What a stage allocates for the message that it takes in forward, and for the one that it gives in backward.
struct Taken : torch::autograd::Function<Taken> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& anchor, int64_t rows, int64_t columns) {
    return at::zeros({rows, columns}, anchor.options());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    const auto message = gradients[0].clone();
    return {at::zeros({}, message.options()), {}, {}};
  }
};

/// The same where it gives a message in forward, and takes one in backward.
struct Given : torch::autograd::Function<Given> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    const auto message = x.clone();
    context->saved_data["sizes"] = x.sizes().vec();
    return at::zeros({}, x.options());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {at::zeros(context->saved_data["sizes"].toIntVector(), gradients[0].options())};
  }
};

class TwoStages : public Passes {
 public:
  TwoStages(SplitTask& task, parallel::GradientSync& sync, parallel::Mesh& mesh)
      : task_(task), sync_(sync), stages_(mesh.group(Axis::pipeline)) {}

  std::vector<double> run(const data::Batch& batch, double scale, detail::StepNumbers& numbers) override {
    const parallel::MicroBatch whole = {.own_samples = batch.images.size(0), .samples = batch.global_size};
    sync_.before_forward(whole);
    const auto loss = numbers.add(1);
    Tensor end;  // where this stage's backward begins
    if (stages_.rank() == 0) {
      end = comm::send(task_.forward(input_of(batch)), 1, stages_);
    } else {
      const auto own = task_.loss_of(task_.forward(comm::recv(0, stages_)), batch);
      loss.fill_(own.value);
      end = own.own * scale;
    }
    sync_.before_backward(end, whole);
    end.backward();
    sync_.after_backward(whole);
    return {1};
  }

  /// The whole stage as one block.
  memory::Composition rehearse(const data::Batch& batch, memory::Account held, const Update& update) override {
    auto* sync = sync_.rehearsal();
    const auto memory = sync != nullptr ? sync->memory() : parallel::SyncMemory();
    held.add(Category::communication, memory.beside);
    const auto stage = memory::make_block("", {}, [&](const Tensor&) {
      if (stages_.rank() == 0) return Given::apply(task_.forward(input_of(batch)));
      const auto anchor = at::zeros({}, at::kDouble).requires_grad_();
      const int64_t columns = task_.parameters()[0].tensor.size(1);  // of row.weight
      return task_.loss_of(task_.forward(Taken::apply(anchor, batch.images.size(0), columns)), batch).own * 1.0;
    });
    std::vector<memory::Change> changes;
    if (memory.exchange > 0) changes.push_back({memory.exchange, Category::communication, 0});
    if (sync != nullptr) sync->run_alone(true);
    const auto records = memory::rehearse({{stage}}, {batch.images}, {.given_away = memory.owned_gradients});
    if (sync != nullptr) sync->run_alone(false);
    for (const auto& change : update({})) changes.push_back(change);
    return memory::compose(records, held, changes);
  }

 private:
  SplitTask& task_;
  parallel::GradientSync& sync_;
  comm::ProcessGroup& stages_;
};

}  // namespace

MakePasses two_stages(SplitTask& task) {
  return [&task](Task&, parallel::GradientSync& sync, const std::vector<Parameter>&, parallel::Mesh& mesh) {
    return std::make_unique<TwoStages>(task, sync, mesh);
  };
}

}  // namespace tandem::train
