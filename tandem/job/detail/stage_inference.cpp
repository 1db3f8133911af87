#include "tandem/job/detail/stage_inference.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/comm/collectives.h"
#include "tandem/pipeline/schedule.h"

namespace tandem::job {

/// The stages of this rank, on some batches, which each rank takes when it comes to them.
class StageInference::BatchStages : public pipeline::Stages {
 public:
  BatchStages(const Model& model, const train::Task::Batches& batches, Question question, int64_t k)
      : model_(model), batches_(batches), question_(question), k_(k), answers_(batches.count) {}

  memory::Chain chain(int stage, int) override { return model_.chain(stage); }
  memory::Flow input(int) override { return {take()}; }
  void end_forward(int i, const memory::Flow& output) override {
    const auto& batch = taken(i);
    answers_[i] = model_.divides_head ? Answers{{}, {}, output[0]}
                                      : model_.answers(output[0], batch, question_, k_, batches_.sizes(batch));
  }

  /// Without its images.
  const data::Batch& taken(size_t i) {
    while (taken_.size() <= i) take();
    return taken_[i];
  }

  Answers& answers(int64_t i) { return answers_[i]; }  // empty where the last stage is not

 private:
  Tensor take() {
    auto batch = batches_.next();
    auto images = std::move(batch.images);
    taken_.push_back(std::move(batch));
    return images;
  }

  const Model& model_;
  const train::Task::Batches& batches_;
  Question question_;
  int64_t k_;
  std::vector<data::Batch> taken_;
  std::vector<Answers> answers_;
};

void StageInference::answer(const train::Task::Batches& batches, Question question, int64_t k,
                            const train::Task::Use& use) {
  const int64_t most = 2 * group_.size();
  for (int64_t first = 0; first < batches.count; first += most) {
    answer_some({std::min(most, batches.count - first), batches.next, batches.sizes}, question, k, use);
  }
}

StageInference::Answers StageInference::answer(const data::Batch& batch, Question question, int64_t k,
                                               std::span<const int64_t> sizes) {
  Answers answers;
  answer_some({1, [&] { return batch; }, [&](const auto&) { return std::vector(sizes.begin(), sizes.end()); }},
              question, k, [&](const data::Batch&, const Answers& of) { answers = of; });
  return answers;
}

void StageInference::answer_some(const train::Task::Batches& batches, Question question, int64_t k,
                                 const train::Task::Use& use) {
  const at::NoGradGuard no_grad;
  auto& executor = executors_[batches.count];
  if (executor == nullptr) {
    auto program = pipeline::inference_program(model_.rank_of, static_cast<int>(batches.count));
    executor = std::make_unique<pipeline::Executor>(std::move(program), group_);
  }
  BatchStages stages(model_, batches, question, k);
  executor->run(stages);
  for (int64_t i = 0; i < batches.count; ++i) {
    const auto& batch = stages.taken(i);
    share(stages.answers(i), batch, question, k, batches.sizes(batch));
    use(batch, stages.answers(i));
  }
}

/// Gives all ranks along the pipeline what the one with the last stage has, or the features to those that answer
/// together.
void StageInference::share(Answers& answers, const data::Batch& batch, Question question, int64_t k,
                           std::span<const int64_t> sizes) {
  const int64_t rows = batch.labels.size(0);
  if (question == Question::features || model_.divides_head) {
    answers.features = shared(answers.features, {rows, model_.dim}, model_.type);
    if (question != Question::features) answers = model_.answers(answers.features, batch, question, k, sizes);
    return;
  }
  answers.best.classes = shared(answers.best.classes, {rows, k}, at::kLong);
  answers.best.scores = shared(answers.best.scores, {rows, k}, at::kFloat);
  if (question == Question::scores) answers.loss = shared(answers.loss, {}, at::kDouble);
}

Tensor StageInference::shared(const Tensor& value, at::IntArrayRef sizes, at::ScalarType type) {
  const int root = model_.rank_of.back();
  const auto all = group_.rank() == root ? value.to(at::kCPU, type).contiguous() : at::empty(sizes, type);
  comm::broadcast_(all, root, group_);
  return all;
}

}  // namespace tandem::job
