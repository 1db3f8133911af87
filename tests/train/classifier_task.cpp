#include "tests/train/classifier_task.h"

#include <ATen/ATen.h>

namespace tandem::train {
namespace {

classifier::HeadOptions head_of(const Recipe& recipe) {
  auto options = recipe.head;
  options.classes = Patterns().num_classes();
  options.dim = recipe.embedding;
  return options;
}

}  // namespace

ClassifierTask::ClassifierTask(const Recipe& recipe, comm::ProcessGroup& group)
    : recipe_(recipe),
      backbone_(models::make({.name = recipe.model, .channels = 1, .size = 8, .embedding = recipe.embedding})),
      head_(head_of(recipe), group) {
  backbone_->to(recipe.head.dtype);
}

std::vector<Parameter> ClassifierTask::parameters() const {
  auto all = parameters_of(*backbone_);
  all.push_back(head_.parameter());
  return all;
}

std::optional<RowParameter> ClassifierTask::row_parameter() const {
  if (!recipe_.steps_in_backward && !recipe_.moves_all_rows) return std::nullopt;
  return RowParameter{head_.parameter().name, recipe_.steps_in_backward, recipe_.moves_all_rows};
}

}  // namespace tandem::train
