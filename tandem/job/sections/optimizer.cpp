#include "tandem/train/optimizer.h"

#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/naming.h"
#include "tandem/job/sections/section.h"

namespace tandem::job {
namespace {

using train::OptimizerKind;

constexpr std::array<Choice<OptimizerKind>, 3> kOptimizerKinds = {
    {{"sgd", OptimizerKind::sgd}, {"adamw", OptimizerKind::adamw}, {"adam", OptimizerKind::adam}}};

void read_optimizer(settings::Settings& settings, Job& job) {
  job.optimizer = {.kind = chosen(kOptimizerKinds, settings.get_string("train.optimizer")),
                   .momentum = settings.get_float("train.momentum"),
                   .nesterov = settings.get_bool("train.nesterov"),
                   .weight_decay = settings.get_float("train.weight_decay"),
                   .beta1 = settings.get_float("train.beta1"),
                   .beta2 = settings.get_float("train.beta2")};
  if (!settings.get_bool("train.decay_norms")) job.optimizer.groups.push_back(train::vectors_without_decay());
}

void check_optimizer(const Job& job) {
  naming_settings({"train"}, [&] { train::Optimizer({}, job.optimizer); });  // the constructor checks the options
}

}  // namespace

const Section& optimizer_section() {
  static const Section section = {
      .rows = {{.key = "train.optimizer",
                .default_value = text("sgd"),
                .doc = "the optimizer",
                .choices = names_of(kOptimizerKinds)},
               {"train.momentum", 0.9, "SGD: momentum", kDecay},
               {"train.nesterov", true, "SGD: Nesterov momentum; needs train.momentum above 0"},
               {"train.weight_decay", 5e-4, "weight decay; SGD, Adam: added to the gradient; AdamW: decoupled",
                kNotNegative},
               {"train.decay_norms", true, "weight decay also of norms' weights and of biases"},
               {"train.beta1", 0.9, "Adam, AdamW: decay rate of the mean of the gradients", kDecay},
               {"train.beta2", 0.999, "Adam, AdamW: decay rate of the mean of the squared gradients", kDecay}},
      .read = read_optimizer,
      .check = check_optimizer,
      .idle = {{{"train.momentum", "train.nesterov"},
                [](const Job& job) { return job.optimizer.kind != OptimizerKind::sgd; },
                "except with train.optimizer=sgd"},
               {{"train.beta1", "train.beta2"},
                [](const Job& job) { return job.optimizer.kind == OptimizerKind::sgd; },
                "with train.optimizer=sgd"},
               {{"train.decay_norms"},
                [](const Job& job) { return job.optimizer.weight_decay == 0; },
                "with train.weight_decay=0"}},
      .identity = {"train.optimizer", "model.freeze"}};  // which state there is
  return section;
}

}  // namespace tandem::job
