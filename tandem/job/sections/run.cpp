#include "tandem/job/sections/run.h"

#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/section.h"
#include "tandem/train/evaluate.h"

namespace tandem::job {
namespace {

constexpr std::array<Choice<Resume>, 2> kResumes = {{{"none", Resume::none}, {"auto", Resume::newest}}};

constexpr std::array<Choice<Traced>, 3> kTraced = {
    {{"none", Traced::nothing}, {"hash", Traced::hash}, {"stats", Traced::stats}}};

constexpr std::string_view kNoBest = "none";

std::vector<std::string_view> best_choices() {
  std::vector<std::string_view> names = {kNoBest};
  for (const auto& metric : train::metrics()) names.emplace_back(metric.name);
  return names;
}

std::optional<std::string> read_folder(std::string_view text) {
  if (text.empty()) return std::nullopt;
  return std::string(text);
}

void read_run(settings::Settings& settings, Job& job) {
  const auto& resume = settings.get_string("resume");
  const auto& best = settings.get_string("checkpoint.best");
  const bool is_path = std::ranges::find(kResumes, resume, &Choice<Resume>::name) == kResumes.end();
  job.run = {.out = settings.get_string("out"),
             .resume = is_path ? Resume::from_path : chosen(kResumes, resume),
             .resume_path = is_path ? resume : "",
             .checkpoint_every = settings.get_int("checkpoint.every"),
             .checkpoint_keep = settings.get_int("checkpoint.keep"),
             .best = best == kNoBest ? "" : best,
             .compares_forms = settings.get_bool("report.compare"),
             .traced = chosen(kTraced, settings.get_string("trace.blocks"))};
}

}  // namespace

const Section& run_section() {
  static const Section section = {
      .rows = {{"out", text(""), "folder of the run; empty: runs/<date>-<letter>, or with resume=FOLDER that folder"},
               {.key = "resume",
                .default_value = text("none"),
                .doc = "none: start a new run; auto: go on from the newest good checkpoint in `out`; a folder: go on "
                       "with that run from its newest good checkpoint, in that folder unless `out` names another",
                .choices = names_of(kResumes),
                .other = {"a folder", read_folder}},
               {"checkpoint.every", int64_t{0}, "steps between two checkpoints; 0: at the end of each epoch", kCount},
               {"checkpoint.keep", int64_t{2}, "number of newest checkpoints to keep", {1, 1e6}},
               {.key = "checkpoint.best",
                .default_value = text(kNoBest),
                .doc = "also keep the checkpoint of the test with the best of these scores: the highest top1 or top5, "
                       "the lowest loss; its name is RUN/checkpoints/best",
                .choices = best_choices()},
               {"report.compare", true,
                "also predict the memory of the other form of the head, for the report's figure"},
               {.key = "trace.blocks",
                .default_value = text("none"),
                .doc = "write what each block passes on in each step, and its gradient, into RUN/blocks.jsonl for "
                       "tandem diff; hash: of all bits; stats: sums; slow",
                .choices = names_of(kTraced)}},
      .read = read_run};
  return section;
}

}  // namespace tandem::job
