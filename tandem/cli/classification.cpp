#include <ATen/ATen.h>

#include "tandem/base/error.h"
#include "tandem/classifier/class_sharded_head.h"
#include "tandem/cli/head_settings.h"
#include "tandem/cli/job.h"
#include "tandem/cli/memory_plan.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/memory/meter.h"
#include "tandem/models/backbone.h"
#include "tandem/train/autocast.h"

namespace tandem::cli {
namespace {

/// Shares of the classes that memory.limit asks for: rank 0's word. Collective.
std::vector<int64_t> planned_counts(const settings::Settings& settings, const JobShape& shape,
                                    comm::ProcessGroup& group) {
  if (settings.get_list("memory.limit").empty()) return {};
  auto counts = comm::split_sizes(shape.classes, group.size());
  std::string fault;
  if (group.rank() == 0) {
    try {
      counts = MemoryPlan(settings, group.size(), shape).counts();
    } catch (const SettingsError& error) {
      fault = message_of(error);
    }
  }
  fault = comm::broadcast_text(fault, 0, group);
  if (!fault.empty()) throw SettingsError(fault);
  const auto sent = at::tensor(counts, at::kLong);
  comm::broadcast_(sent, 0, group);
  return {sent.const_data_ptr<int64_t>(), sent.const_data_ptr<int64_t>() + sent.numel()};
}

classifier::HeadOptions head_options(const settings::Settings& settings, int64_t classes, int64_t dim, HeadForm form,
                                     comm::ProcessGroup& group, const std::array<int64_t, 3>& image_shape) {
  auto options = read_head(settings, classes, dim, form);
  if (form != HeadForm::naive) options.counts = planned_counts(settings, {classes, image_shape}, group);
  return options;
}

/// A backbone that every rank has, and a classifier of which each rank has a part.
class Classification : public train::Task {
 public:
  Classification(const settings::Settings& settings, const data::Dataset& dataset, HeadForm form,
                 comm::ProcessGroup& group)
      : bf16_(settings.get_string("train.precision") == "bf16"),
        dtype_(settings.get_string("train.precision") == "float64" ? at::kDouble : at::kFloat),
        classes_(num_classes(settings, dataset)),
        backbone_(make_backbone(settings, dataset.image_shape())),
        head_(head_options(settings, classes_, backbone_->dim(), form, group, dataset.image_shape()), group) {
    if (anneals(settings)) annealing_ = read_annealing(settings);
    fused_ = settings.get_bool("head.fused_update") && form != HeadForm::naive;
    lazy_ = head_.options().sampling && settings.get_string("head.lazy") == "exact";
  }

  void begin_step(int64_t step) override {
    head_.set_step(step);
    if (annealing_) head_.set_softening(annealing_->at(step));
  }

  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override {
    return head_.loss(forward(batch), batch.labels, sizes);
  }

  Tensor top_k(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override {
    return head_.top_k(forward(batch), k, sizes);
  }

  Tensor embed(const data::Batch& batch) override {
    const at::NoGradGuard no_grad;
    return forward(batch).to(dtype_);
  }

  void set_training(bool training) override {
    backbone_->train(training);
    head_.set_training(training);
  }

  std::vector<train::Parameter> parameters() const override {
    auto all = train::parameters_of(*backbone_);
    all.push_back(head_.parameter(kHeadWeight));
    return all;
  }

  // The head's weight is the last of parameters().
  std::optional<train::RowParameter> row_parameter() const override {
    if (!fused_ && !lazy_) return std::nullopt;
    return train::RowParameter{train::parameters_of(*backbone_).size(), fused_, lazy_};
  }
  void set_row_hooks(RowUpdate update, RowsRead read) override {
    head_.set_row_update(std::move(update));
    head_.set_rows_read(std::move(read));
  }

  std::vector<train::Buffer> buffers() const override { return train::buffers_of(*backbone_); }

 private:
  Tensor forward(const data::Batch& batch) {
    const train::AutocastScope autocast(bf16_);
    return backbone_->forward(batch.images.to(dtype_));
  }

  bool bf16_, fused_ = false, lazy_ = false;
  at::ScalarType dtype_;
  int64_t classes_;
  std::shared_ptr<models::Backbone> backbone_;
  classifier::ClassShardedHead head_;
  std::optional<classifier::Annealing> annealing_;
};

}  // namespace

std::shared_ptr<models::Backbone> make_backbone(const settings::Settings& settings,
                                                const std::array<int64_t, 3>& shape) {
  const memory::Scope scope(memory::Category::parameters);
  const int64_t numbers = shape[0] * shape[1] * shape[2], embedding = settings.get_int("embedding");
  if (settings.get_string("model") == "none" && numbers != embedding) {
    throw SettingsError("embedding is " + std::to_string(embedding) + " with model none, wanted the " +
                        std::to_string(numbers) + " numbers of an image");
  }
  auto backbone = models::make({.name = settings.get_string("model"),
                                .channels = shape[0],
                                .size = shape[1],
                                .width = shape[2],
                                .embedding = embedding,
                                .seed = static_cast<uint64_t>(settings.get_int("seed"))});
  if (settings.get_string("train.precision") == "float64") backbone->to(at::kDouble);
  for (const auto& buffer : backbone->buffers()) memory::tag(buffer, memory::Category::buffers);
  return backbone;
}

std::unique_ptr<train::Task> make_task(const settings::Settings& settings, const data::Dataset& dataset, HeadForm form,
                                       comm::ProcessGroup& group) {
  return std::make_unique<Classification>(settings, dataset, form, group);
}

}  // namespace tandem::cli
