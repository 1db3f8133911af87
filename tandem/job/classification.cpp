#include <ATen/ATen.h>

#include <map>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/classifier/head.h"
#include "tandem/classifier/mesh_head.h"
#include "tandem/classifier/replicated_head.h"
#include "tandem/comm/split.h"
#include "tandem/job/detail/divided_head.h"
#include "tandem/job/detail/stage_inference.h"
#include "tandem/job/detail/stage_plan.h"
#include "tandem/job/parts.h"
#include "tandem/job/sections/naming.h"
#include "tandem/layers/placed.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/planned_chain.h"
#include "tandem/models/backbone.h"
#include "tandem/parallel/statistics_exchange.h"

namespace tandem::job {
namespace {

classifier::HeadOptions head_options(const Job& job, const DataShape& shape, const TaskPlan& plan,
                                     const std::vector<int64_t>& counts) {
  auto options = job.head.options;
  options.classes = shape.classes;
  options.counts = counts;
  options.draws = plan.draws;
  return options;
}

/// In the form of the job: whole on each rank that shares a batch, or split over the ranks along the axes of `over`.
std::unique_ptr<classifier::Head> make_head(const Job& job, const DataShape& shape, const TaskPlan& plan,
                                            parallel::Mesh& mesh) {
  const auto& form = *job.head.form;
  const auto over = job.head.over;
  if (form.is_whole) return form.make(head_options(job, shape, plan, {}), mesh.batch());
  const auto& sizes = mesh.sizes();
  const auto of_ranks = with_copies(job, plan.counts);
  std::vector<int64_t> own;
  if (!plan.counts.empty()) {
    for (const int rank : sizes.ranks_along(over, mesh.world().rank())) own.push_back(of_ranks[rank]);
  }
  auto head = form.make(head_options(job, shape, plan, own), mesh.group(over));
  if (sizes.size(parallel::kBatchAxes) == mesh.world().size()) return head;
  return std::make_unique<classifier::MeshHead>(std::move(head), over, mesh);
}

/// Each rank holds it whole, and scores its own rows. Null for features of no size.
std::unique_ptr<classifier::Head> make_auxiliary(const Job& job, const DataShape& shape, int64_t features,
                                                 parallel::Mesh& mesh) {
  if (features == 0) return nullptr;
  auto scoring = classifier::linear_softmax();
  scoring.smoothing = job.head.options.scoring.smoothing;
  const auto& head = job.head.options;
  auto auxiliary = std::make_unique<classifier::ReplicatedHead>(
      classifier::HeadOptions{.classes = shape.classes,
                              .dim = features,
                              .scoring = scoring,
                              .blocks = head.blocks,
                              .shards = head.shards,
                              .seed = head.seed ^ stream_of(kAuxiliaryWeight),
                              .dtype = head.dtype,
                              .device = head.device},
      mesh.batch());
  memory::tag(auxiliary->parameter().tensor, Category::parameters, block_number(kHeadBlock));
  return auxiliary;
}

/// The ranks with the last stage of the model have the classifier, or all ranks a part of it. The others only help to
/// make its groups.
std::unique_ptr<classifier::Head> make_head_of(const StagePlan& stages, const Job& job, const DataShape& shape,
                                               const TaskPlan& plan, parallel::Mesh& mesh) {
  mesh.group(job.head.over);
  mesh.group(job.head.over - parallel::kBatchAxes - parallel::Axes{parallel::Axis::pipeline});
  if (!divides_head(job) && stages.rank_of.back() != mesh.coordinate(parallel::Axis::pipeline)) return nullptr;
  return make_head(job, shape, plan, mesh);
}

/// How model.norm=sync shares its statistics over the ranks that share a batch; null for other norms, and for one rank.
/// Collective.
std::shared_ptr<memory::StatisticsExchange> statistics_exchange(const Job& job, parallel::Mesh& mesh) {
  return models::shares_statistics(job.model.norm) ? parallel::share_statistics(mesh.batch()) : nullptr;
}

/// A backbone, and a classifier in the form of the job.
class Classification : public train::Task {
 public:
  Classification(const Job& job, const DataShape& shape, const TaskPlan& plan, parallel::Mesh& mesh)
      : device_(job.parallel.device),
        type_(job.training.precision.type),
        stages_(plan_stages(job, shape, mesh)),
        own_stages_(stages_.stages_of(mesh.coordinate(parallel::Axis::pipeline))),
        backbone_(make_backbone(job, shape.image, &mesh, stages_.blocks_of(mesh.coordinate(parallel::Axis::pipeline)))),
        held_(held_chain()),
        head_(make_head_of(stages_, job, shape, plan, mesh)),
        auxiliary_(head_ ? make_auxiliary(job, shape, backbone_->auxiliary_dim(), mesh) : nullptr),
        auxiliary_share_(job.model.auxiliary),
        mesh_(mesh),
        over_(job.head.over),
        divides_head_(divides_head(job)),
        annealing_(job.head.annealing),
        recompute_(plan.recompute),
        rows_{kHeadWeight, job.head.steps_in_backward, job.head.moves_all_rows} {
    if (stages_.num_stages() > 1) {
      const auto answers = [this](const Tensor& features, const data::Batch& batch, Question question, int64_t k,
                                  std::span<const int64_t> sizes) {
        return own_answers(features, batch.labels, question, k, sizes);
      };
      inference_ = std::make_unique<StageInference>(
          StageInference::Model{.rank_of = stages_.rank_of,
                                .dim = backbone_->dim(),
                                .type = type_,
                                .chain = [this](int stage) { return features_chain(stage); },
                                .divides_head = divides_head_,
                                .answers = answers},
          mesh.group(parallel::Axis::pipeline));
    }
    if (head_) memory::tag(head_->parameter(kHeadWeight).tensor, Category::parameters, block_number(kHeadBlock));
  }

  void begin_step(int64_t step) override {
    if (!head_) return;
    head_->set_step(step);
    if (annealing_) head_->set_softening(annealing_->at(step));
  }

  Tensor loss(const data::Batch& batch, std::span<const int64_t> sizes) override {
    return memory::run(chain(batch, sizes), batch.images);
  }

  void run_apart() override {
    for (auto* head : heads()) head->run_apart();
    is_apart_ = true;
  }
  parallel::Axes summed_along() const override { return is_apart_ ? parallel::kBatchAxes : parallel::Axes(); }
  parallel::Axes divided_along() const override {
    return divides_head_ ? parallel::kBatchAxes | over_ : parallel::Axes();
  }

  std::unique_ptr<train::DividedHead> divided_head(const std::vector<train::BatchPart>& parts, double scale,
                                                   bool is_imagined) override {
    if (!divides_head_) return nullptr;
    return detail::make_divided_head(*head_->class_part(), {over_, stages_.rank_of.back(), scale, is_imagined}, parts,
                                     mesh_);
  }

  memory::Chain chain(const data::Batch& batch, std::span<const int64_t> sizes) override {
    memory::Chain chain;
    for (auto& stage : stages(batch, sizes)) append(std::move(stage), chain);
    return chain;
  }

  std::vector<memory::Chain> stages(const data::Batch& batch, std::span<const int64_t> sizes) override {
    std::vector<memory::Chain> chains;
    int blocks = 0;
    for (const int stage : own_stages_) {
      auto chain = stage_chain(stage, batch, sizes);
      // Without gradients nothing is kept, and a segment would only hold its input to its end.
      if (!recompute_.empty() && at::GradMode::is_enabled()) {
        auto parts = in_parts(chain);
        const int count = static_cast<int>(parts.blocks.size());
        chain = planned_chain(parts, memory::part_of(recompute_, std::exchange(blocks, blocks + count), count));
      }
      chains.push_back(std::move(chain));
    }
    return chains;
  }

  std::vector<memory::Flow> stage_inputs(const data::Batch& batch) override {
    std::vector<memory::Flow> flows;
    for (const int stage : own_stages_) {
      const auto options = at::TensorOptions(type_).device(device_);
      flows.push_back(stage == 0 ? memory::Flow{batch.images} : stages_.input_of(stage, batch.images.size(0), options));
    }
    return flows;
  }

  Answers evaluate(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override {
    return inference_ ? inference_->answer(batch, Question::scores, k, sizes)
                      : own_answers(forward(batch), batch.labels, Question::scores, k, sizes);
  }

  Ranking predict(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override {
    return inference_ ? inference_->answer(batch, Question::classes, k, sizes).best : ranking(forward(batch), k, sizes);
  }

  Tensor embed(const data::Batch& batch) override {
    const at::NoGradGuard no_grad;
    return inference_ ? inference_->answer(batch, Question::features, 0, {}).features
                      : forward(batch).to(at::kCPU, type_);
  }

  void answer(const Batches& batches, Question question, int64_t k, const Use& use) override {
    inference_ ? inference_->answer(batches, question, k, use) : Task::answer(batches, question, k, use);
  }

  /// Each stage of this rank, and the classifier.
  void rehearse_test(const data::Batch& batch, int64_t k, std::span<const int64_t> sizes) override {
    const at::NoGradGuard no_grad;
    const int64_t images = batch.images.size(0);
    const auto options = at::TensorOptions(type_).device(device_);
    const bool has_last = stages_.is_last(own_stages_.back());
    Tensor features;
    for (const int stage : own_stages_) {
      const auto input = stage == 0 ? memory::Flow{batch.images} : stages_.input_of(stage, images, options);
      features = memory::run(features_chain(stage), input)[0];
    }
    Tensor waiting;  // what other batches' features take until the last has passed
    if (divides_head_ && has_last) {
      waiting = at::empty({2 * mesh_.sizes().pipeline * images, backbone_->dim()}, options);
    } else if (divides_head_) {
      features = at::empty({images, backbone_->dim()}, options);
    }
    if (head_) own_answers(features, batch.labels, Question::scores, k, sizes);
  }

  void set_training(bool training) override {
    backbone_->train(training);
    for (auto* head : heads()) head->set_training(training);
  }

  memory::Chain* replicated_chain() override { return inference_ ? &held_ : &backbone_->chain(); }

  std::vector<train::Parameter> parameters() const override {
    auto all = layers::parameters_of(*backbone_, mesh_);
    if (divides_head_) all = here_alone(std::move(all));
    if (head_) all.push_back(head_->parameter(kHeadWeight));
    if (auxiliary_) all.push_back(auxiliary_->parameter(kAuxiliaryWeight));
    if (inference_) return divides_head_ ? all : here_alone(std::move(all));
    const auto behind = mesh_.place({}).behind - parallel::kBatchAxes;  // of those with the same batch
    for (auto& parameter : all) {
      if (parameter.placement.is_everywhere()) parameter.placement.behind = behind;
    }
    return all;
  }

  std::optional<train::RowParameter> row_parameter() const override {
    if (!head_ || (!rows_.steps_in_backward && !rows_.moves_all_rows)) return std::nullopt;
    return rows_;
  }
  void set_row_hooks(RowUpdate update, RowsRead read) override {
    head_->set_row_update(std::move(update));
    head_->set_rows_read(std::move(read));
  }

  std::vector<train::Parameter> buffers() const override {
    auto all = layers::buffers_of(*backbone_, mesh_);
    return inference_ ? here_alone(std::move(all)) : all;
  }

 private:
  std::vector<classifier::Head*> heads() const {
    if (auxiliary_) return {head_.get(), auxiliary_.get()};
    return head_ ? std::vector<classifier::Head*>{head_.get()} : std::vector<classifier::Head*>();
  }

  static void append(memory::Chain some, memory::Chain& all) {
    for (auto& block : some.blocks) all.blocks.push_back(std::move(block));
  }

  /// The blocks of one stage of this rank.
  memory::Chain stage_chain(int stage, const data::Batch& batch, std::span<const int64_t> sizes) {
    auto chain = features_chain(stage);
    if (!stages_.is_last(stage) || divides_head_) return chain;
    memory::Block classifier{.name = kHeadBlock};
    classifier.forward = [this, labels = batch.labels, sizes = std::vector(sizes.begin(), sizes.end())](
                             const memory::Flow& features) { return memory::Flow{loss_of(features, labels, sizes)}; };
    chain.blocks.push_back(std::move(classifier));
    return chain;
  }

  /// The same without the classifier.
  memory::Chain features_chain(int stage) {
    memory::Chain chain;
    if (stage == 0)
      chain.blocks.push_back(memory::make_block("input", {}, [this](const Tensor& x) { return input(x); }));
    if (stages_.num_stages() == 1) {
      append(backbone_->chain(), chain);
      return chain;
    }
    size_t first = 0;
    for (const int before : own_stages_) {
      if (before < stage) first += num_blocks_.at(before);
    }
    const auto begin = held_.blocks.begin() + static_cast<std::ptrdiff_t>(first);
    chain.blocks.insert(chain.blocks.end(), begin, begin + static_cast<std::ptrdiff_t>(num_blocks_.at(stage)));
    return chain;
  }

  /// The blocks of all stages of this rank, one stage after the other. Parts of one block may be in several.
  memory::Chain held_chain() {
    memory::Chain all;
    for (const int stage : own_stages_) {
      if (stages_.num_stages() == 1) break;
      auto some = backbone_->chain(stages_.blocks[stage]);
      num_blocks_[stage] = some.blocks.size();
      some.blocks.back().ends_run = true;
      append(std::move(some), all);
    }
    return all;
  }

  /// Other ranks along the pipeline have none of them.
  std::vector<train::Parameter> here_alone(std::vector<train::Parameter> all) const {
    constexpr parallel::Axes kPipeline = {parallel::Axis::pipeline};
    const auto behind = mesh_.place({}).behind;
    for (auto& [name, tensor, placement] : all) {
      if (placement.is_everywhere()) placement.behind = behind;
      placement.behind = placement.behind - kPipeline;
      placement.some_along = placement.some_along | kPipeline;
    }
    return all;
  }

  /// Where the classifier is.
  Answers own_answers(const Tensor& made, const Tensor& labels, Question question, int64_t k,
                      std::span<const int64_t> sizes) {
    const auto features = made.to(device_);
    if (question == Question::features) return {{}, {}, features.to(at::kCPU, type_)};
    Answers answers{ranking(features, k, sizes), {}};
    if (question == Question::scores) answers.loss = head_->loss(features, labels, sizes);
    return answers;
  }

  /// `features`: those of the images, and auxiliary ones if there are any.
  Tensor loss_of(const memory::Flow& features, const Tensor& labels, std::span<const int64_t> sizes) {
    auto loss = head_->loss(features[0], labels, sizes);
    if (features.size() == 1) return loss;
    return loss + auxiliary_->loss(features[1], labels, sizes) * auxiliary_share_;
  }

  Tensor forward(const data::Batch& batch) { return backbone_->forward(input(batch.images)); }

  Ranking ranking(const Tensor& features, int64_t k, std::span<const int64_t> sizes) const {
    const auto best = head_->top_k(features, k, sizes);
    return {best.classes.cpu(), best.scores.to(at::kCPU, at::kFloat)};
  }

  Tensor input(const Tensor& images) const { return images.to(device_, type_, /*non_blocking=*/true); }

  c10::Device device_;
  at::ScalarType type_;
  StagePlan stages_;
  std::vector<int> own_stages_;
  std::shared_ptr<models::Backbone> backbone_;
  std::map<int, size_t> num_blocks_;                    // of a stage
  memory::Chain held_;                                  // of this rank's stages, where the model is cut into some
  std::unique_ptr<classifier::Head> head_, auxiliary_;  // null: on a rank without the last stage; the second often
  std::unique_ptr<StageInference> inference_;           // null: all stages are here
  double auxiliary_share_;
  parallel::Mesh& mesh_;
  parallel::Axes over_;
  bool divides_head_;
  std::optional<classifier::Annealing> annealing_;
  memory::RecomputePlan recompute_;
  bool is_apart_ = false;
  train::RowParameter rows_;
};

}  // namespace

std::shared_ptr<models::Backbone> make_backbone(const Job& job, const std::array<int64_t, 3>& shape,
                                                parallel::Mesh* mesh, std::vector<models::BlockRange> blocks) {
  const CategoryScope scope(Category::parameters);
  const int64_t numbers = shape[0] * shape[1] * shape[2], embedding = job.model.embedding;
  if (job.model.is_identity && numbers != embedding) {
    throw SettingsError("embedding is " + std::to_string(embedding) + " with model " + job.model.name +
                        ", wanted the " + std::to_string(numbers) + " numbers of an image");
  }
  const bool is_whole = blocks.empty();
  const models::ModelOptions options = {.name = job.model.name,
                                        .channels = shape[0],
                                        .size = shape[1],
                                        .width = shape[2],
                                        .embedding = embedding,
                                        .norm = job.model.norm,
                                        .ghost = job.model.ghost,
                                        .zero_gamma = job.model.zero_gamma,
                                        .activation = job.model.activation,
                                        .cells = job.model.cells,
                                        .cell_channels = job.model.channels,
                                        .stem = job.model.stem,
                                        .has_auxiliary = job.model.auxiliary > 0,
                                        .drop_path = job.model.drop_path,
                                        .patch = job.model.patch,
                                        .heads = job.model.heads,
                                        .search_method = job.model.search_method,
                                        .search_partial = job.model.search_partial,
                                        .dropout = job.model.dropout,
                                        .products = job.training.precision.products,
                                        .ranks = mesh != nullptr ? statistics_exchange(job, *mesh) : nullptr,
                                        .divides_tokens = job.model.divides_tokens,
                                        .tensor = mesh != nullptr ? &mesh->group(parallel::Axis::tensor) : nullptr,
                                        .blocks = std::move(blocks),
                                        .seed = job.seed};
  auto backbone = naming_settings({"model"}, [&] { return models::make(options); });
  if (job.training.precision.type != at::kFloat) backbone->to(job.training.precision.type);
  backbone->to(job.parallel.device);
  if (is_whole && !job.model.is_identity) {
    naming_settings({"model"}, [&] { models::freeze(*backbone, job.model.freeze); });
  }
  if (!is_whole) models::freeze_here(*backbone, job.model.freeze);
  for (const auto& block : backbone->chain().blocks) {
    const int number = block_number(block.name);
    for (const auto& parameter : memory::parameters_of(block)) memory::tag(parameter, Category::parameters, number);
    for (const auto& buffer : memory::buffers_of(block)) memory::tag(buffer, Category::buffers, number);
  }
  return backbone;
}

std::unique_ptr<train::Task> make_task(const Job& job, const DataShape& shape, const TaskPlan& plan,
                                       parallel::Mesh& mesh) {
  return std::make_unique<Classification>(job, shape, plan, mesh);
}

}  // namespace tandem::job
