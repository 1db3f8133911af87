#include "tandem/classifier/class_sharded_head.h"
#include "tandem/cli/head_settings.h"
#include "tandem/cli/job.h"
#include "tandem/comm/split.h"
#include "tandem/memory/meter.h"
#include "tandem/models/backbone.h"
#include "tandem/train/autocast.h"

namespace tandem::cli {
namespace {

std::shared_ptr<models::Backbone> make_backbone(const Settings& settings, const data::Dataset& dataset) {
  const memory::Scope scope(memory::Category::parameters);
  const auto shape = dataset.image_shape();
  auto backbone = models::make({.name = settings.get_string("model"),
                                .channels = shape[0],
                                .size = shape[1],
                                .embedding = settings.get_int("embedding"),
                                .seed = static_cast<uint64_t>(settings.get_int("seed"))});
  if (settings.get_string("train.precision") == "float64") backbone->to(at::kDouble);
  for (const auto& buffer : backbone->buffers()) memory::tag(buffer, memory::Category::buffers);
  return backbone;
}

/// A backbone that every rank has, and a classifier of which each rank has a part.
class Classification : public train::Task {
 public:
  Classification(const Settings& settings, const data::Dataset& dataset, HeadForm form, comm::ProcessGroup& group)
      : bf16_(settings.get_string("train.precision") == "bf16"),
        dtype_(settings.get_string("train.precision") == "float64" ? at::kDouble : at::kFloat),
        classes_(dataset.num_classes()),
        backbone_(make_backbone(settings, dataset)),
        head_({.classes = classes_,
               .dim = backbone_->dim(),
               .scoring = read_scoring(settings),
               .naive = form == HeadForm::naive,
               .blocks = read_blocks(settings),
               .sampling = form == HeadForm::naive ? std::nullopt : read_sampling(settings),
               .seed = static_cast<uint64_t>(settings.get_int("seed")),
               .dtype = dtype_},
              group) {
    if (anneals(settings)) annealing_ = read_annealing(settings);
    fused_ = settings.get_bool("head.fused_update") && form != HeadForm::naive;
    lazy_ = head_.options().sampling && settings.get_string("head.lazy") == "exact";
  }

  void begin_step(int64_t step) override {
    head_.set_step(step);
    if (annealing_) head_.set_softening(annealing_->at(step));
  }

  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override {
    return head_.loss(embed(batch), batch.labels, sizes);
  }

  Tensor top_k(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override {
    return head_.top_k(embed(batch), k, sizes);
  }

  void set_training(bool training) override {
    backbone_->train(training);
    head_.set_training(training);
  }

  std::vector<train::Parameter> parameters() const override {
    auto all = train::parameters_of(*backbone_);
    all.push_back(
        {kHeadWeight, head_.weight(), train::RowRange{head_.first_class(), head_.weight().size(0), classes_}});
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
  Tensor embed(const data::Batch& batch) {
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

std::unique_ptr<train::Task> make_task(const Settings& settings, const data::Dataset& dataset, HeadForm form,
                                       comm::ProcessGroup& group) {
  return std::make_unique<Classification>(settings, dataset, form, group);
}

}  // namespace tandem::cli
