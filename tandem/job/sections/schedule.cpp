#include "tandem/job/sections/schedule.h"

#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/section.h"

namespace tandem::job {
namespace {

using train::ScheduleKind;

constexpr std::array<Choice<ScheduleKind>, 4> kScheduleKinds = {{{"onecycle", ScheduleKind::onecycle},
                                                                 {"cosine", ScheduleKind::cosine},
                                                                 {"step", ScheduleKind::step},
                                                                 {"constant", ScheduleKind::constant}}};

constexpr std::array<Choice<bool>, 2> kChanges = {{{"step", false}, {"epoch", true}}};

void read_schedule(settings::Settings& settings, Job& job) {
  auto& options = job.schedule.options;
  options.kind = chosen(kScheduleKinds, settings.get_string("train.schedule"));
  options.lr = settings.get_float("train.lr");
  if (const auto base = settings.get_int("train.base_batch"); base > 0) {
    options.lr *= static_cast<double>(job.training.batch) / static_cast<double>(base);
  }
  // onecycle always has a warm-up; other schedules have one only if train.warmup is set.
  if (options.kind != ScheduleKind::onecycle && !settings.given("train.warmup")) settings.set("train.warmup", "0");
  options.warmup = settings.get_float("train.warmup");
  options.gamma = settings.get_float("train.gamma");
  options.least = settings.get_float("train.lr_min");
  job.schedule.changes_by_epoch = chosen(kChanges, settings.get_string("train.lr_every"));
  job.schedule.milestone_epochs = settings.get_numbers("train.milestones");
}

bool has_no_steps(const Job& job) { return job.schedule.options.kind != ScheduleKind::step; }

std::string hint(const Job& job) {
  if (has_no_steps(job) || !job.schedule.milestone_epochs.empty()) return "";
  return "train.schedule is step without train.milestones: the learning rate never falls";
}

}  // namespace

const Section& schedule_section() {
  static const Section section = {
      .rows =
          {{"train.lr", 0.3, "highest learning rate", kNotNegative},
           {"train.base_batch",
            int64_t{0},
            "train.lr is for batches of this many images and scaled with train.batch; 0: train.lr is for train.batch",
            {0, 1e9}},
           {.key = "train.schedule",
            .default_value = text("onecycle"),
            .doc = "schedule of the learning rate",
            .choices = names_of(kScheduleKinds)},
           {"train.warmup", 0.3,
            "fraction of the steps in which the learning rate rises; schedules other than onecycle have no warm-up "
            "unless this is set",
            kFraction},
           {"train.lr_min", 0.0, "cosine schedule: learning rate at the end", kNotNegative},
           {.key = "train.lr_every",
            .default_value = text("step"),
            .doc = "cosine schedule: whether each step or each epoch has a learning rate of its own",
            .choices = names_of(kChanges)},
           {"train.milestones", std::vector<double>(), "step schedule: epochs at which the learning rate falls",
            kNotNegative},
           {"train.gamma", 0.1, "step schedule: factor of the learning rate at each milestone", kFraction}},
      .read = read_schedule,
      .idle = {{{"train.milestones", "train.gamma"}, has_no_steps, "except with train.schedule=step"},
               {{"train.lr_min", "train.lr_every"},
                [](const Job& job) { return job.schedule.options.kind != ScheduleKind::cosine; },
                "except with train.schedule=cosine"}},
      .hint = hint};
  return section;
}

}  // namespace tandem::job
