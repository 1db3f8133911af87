#include "tests/train/classifier_task.h"

#include <ATen/ATen.h>

#include "tandem/classifier/replicated_head.h"

namespace tandem::train {
namespace {

classifier::HeadOptions head_of(const Recipe& recipe) {
  auto options = recipe.head;
  options.classes = Patterns().num_classes();
  options.dim = recipe.embedding;
  return options;
}

std::unique_ptr<classifier::Head> make_head(const Recipe& recipe, comm::ProcessGroup& group) {
  if (recipe.is_whole) return std::make_unique<classifier::ReplicatedHead>(head_of(recipe), group);
  return std::make_unique<classifier::ClassShardedHead>(head_of(recipe), group);
}

}  // namespace

ClassifierTask::ClassifierTask(const Recipe& recipe, comm::ProcessGroup& group)
    : recipe_(recipe),
      backbone_(models::make({.name = recipe.model, .channels = 1, .size = 8, .embedding = recipe.embedding})),
      head_(make_head(recipe, group)) {
  backbone_->to(recipe.head.dtype);
}

std::vector<Parameter> ClassifierTask::parameters() const {
  auto all = parameters_of(*backbone_);
  all.push_back(head_->parameter());
  return all;
}

std::optional<RowParameter> ClassifierTask::row_parameter() const {
  if (!recipe_.steps_in_backward && !recipe_.moves_all_rows) return std::nullopt;
  return RowParameter{head_->parameter().name, recipe_.steps_in_backward, recipe_.moves_all_rows};
}

}  // namespace tandem::train
