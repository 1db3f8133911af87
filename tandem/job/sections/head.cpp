#include "tandem/job/sections/head.h"

#include <ATen/ATen.h>

#include <array>

#include "tandem/base/format.h"
#include "tandem/classifier/replicated_head.h"
#include "tandem/classifier/scoring.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/pipeline.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"

namespace tandem::job {

/// The numbers that define the scoring of a head.
struct HeadNumbers {
  double scale, margin, factor, softening;
  std::array<double, 3> margins;
};

/// A loss: a row of the table below. To add a loss, add a row. The flags say which settings have an effect on it.
struct HeadKind {
  std::string_view name;
  classifier::Scoring (*scoring)(const HeadNumbers& numbers);
  bool has_scale = false, has_margin = false, has_margins = false;
  bool anneals = false;       // head.factor and head.anneal
  bool changes_angle = true;  // head.beyond and head.gradient
};

namespace {

using classifier::Beyond;
using classifier::TargetGradient;

constexpr std::array<HeadKind, 8> kHeadKinds = {{
    {.name = "softmax",
     .scoring = [](const HeadNumbers&) { return classifier::plain_softmax(); },
     .changes_angle = false},
    {.name = "linear",
     .scoring = [](const HeadNumbers&) { return classifier::linear_softmax(); },
     .changes_angle = false},
    {.name = "normalised",
     .scoring = [](const HeadNumbers& n) { return classifier::normalised_softmax(n.scale); },
     .has_scale = true,
     .changes_angle = false},
    {.name = "cosface",
     .scoring = [](const HeadNumbers& n) { return classifier::cosface(n.scale, n.margin); },
     .has_scale = true,
     .has_margin = true,
     .changes_angle = false},
    {.name = "arcface",
     .scoring = [](const HeadNumbers& n) { return classifier::arcface(n.scale, n.margin); },
     .has_scale = true,
     .has_margin = true},
    {.name = "combined",
     .scoring =
         [](const HeadNumbers& n) {
           return classifier::combined_margin(n.scale, n.margins[0], n.margins[1], n.margins[2]);
         },
     .has_scale = true,
     .has_margins = true},
    {.name = "sphereface",
     .scoring = [](const HeadNumbers& n) { return classifier::sphereface(n.factor, n.softening); },
     .anneals = true},
    {.name = "l-softmax",
     .scoring = [](const HeadNumbers& n) { return classifier::large_margin_softmax(n.factor, n.softening); },
     .anneals = true},
}};

template <class Form>
std::unique_ptr<classifier::Head> make(const classifier::HeadOptions& options, comm::ProcessGroup& group) {
  return std::make_unique<Form>(options, group);
}

constexpr std::array<HeadForm, 3> kForms = {{{.name = "sharded",
                                              .doc = "classes are split over the ranks",
                                              .plan = "head split",
                                              .make = make<classifier::ClassShardedHead>,
                                              .updates_rows = true,
                                              .sums_in_order = true,
                                              .has_passes = true},
                                             {.name = "naive",
                                              .doc = "all logits are gathered on rank 0",
                                              .plan = "all scores on rank 0, head split",
                                              .make = make<classifier::ClassShardedHead>,
                                              .gathers_scores = true},
                                             {.name = "replicated",
                                              .doc = "each rank holds all classes and scores its own images",
                                              .plan = "whole head on each rank",
                                              .make = make<classifier::ReplicatedHead>,
                                              .is_whole = true,
                                              .sums_in_order = true,
                                              .differentiates_twice = true}}};
constexpr std::array<Choice<Beyond>, 5> kBeyonds = {{{"extend", Beyond::extend},
                                                     {"cosine", Beyond::cosine},
                                                     {"linear", Beyond::linear},
                                                     {"easy", Beyond::easy},
                                                     {"clamp", Beyond::clamp}}};
constexpr std::array<Choice<TargetGradient>, 2> kGradients = {
    {{"exact", TargetGradient::exact}, {"detached", TargetGradient::detached}}};
constexpr std::array<Choice<parallel::Axes>, 6> kOvers = {
    {{"all", parallel::Axes::all()},
     {"last", parallel::Axes::all() - parallel::Axes{parallel::Axis::pipeline}},
     {name_of(parallel::Axis::data), {parallel::Axis::data}},
     {name_of(parallel::Axis::shard), {parallel::Axis::shard}},
     {name_of(parallel::Axis::tensor), {parallel::Axis::tensor}},
     {name_of(parallel::Axis::pipeline), {parallel::Axis::pipeline}}}};
constexpr std::array<Choice<bool>, 2> kLazy = {{{"off", false}, {"exact", true}}};
constexpr std::array<Choice<bool>, 2> kProducts = {{{"float32", false}, {"bf16", true}}};  // in bfloat16

template <size_t count>
std::array<double, count> read_numbers(const settings::Settings& settings, const char* key) {
  const auto& numbers = settings.get_numbers(key);
  if (numbers.size() != count) {
    throw SettingsError(std::string(key) + " has " + std::to_string(numbers.size()) + " numbers, wanted " +
                        std::to_string(count));
  }
  std::array<double, count> result;
  std::ranges::copy(numbers, result.begin());
  return result;
}

/// Throws SettingsError, which names the settings of this kind of head.
void check_scoring(const classifier::Scoring& scoring, const HeadKind& kind, const HeadNumbers& numbers) {
  if (kind.has_margins && numbers.margins[0] <= 0) {
    throw SettingsError("head.margins[0] is " + settings::format_value(numbers.margins[0]) +
                        ", wanted a positive number");
  }
  const auto& margin = scoring.margin;
  if (margin.beyond == Beyond::linear && margin.factor != 1.0) {
    throw SettingsError("head.beyond is linear with " +
                        std::string(kind.has_margins ? "head.margins[0]" : "head.factor") + " " +
                        settings::format_value(margin.factor) + ", wanted 1");
  }
  if (scoring.filter < 1.0 && !(scoring.normalise_features && scoring.normalise_weight)) {
    throw SettingsError("head.filter is " + settings::format_value(scoring.filter) +
                            " with head=" + std::string(kind.name) + ", which has no cosines to compare, wanted 1",
                        "leave head.filter out");
  }
  try {
    classifier::check_scoring(scoring);
  } catch (const c10::Error& error) {
    throw SettingsError(message_of(error));
  }
}

classifier::Scoring read_scoring(const settings::Settings& settings, const Head& head) {
  HeadNumbers numbers = {.scale = settings.get_float("head.scale"),
                         .margin = settings.get_float("head.margin"),
                         .factor = settings.get_float("head.factor"),
                         .softening = head.annealing ? head.annealing->at(0) : 0.0,
                         .margins = {}};
  if (head.kind->has_margins) numbers.margins = read_numbers<3>(settings, "head.margins");
  auto scoring = head.kind->scoring(numbers);
  scoring.margin.beyond = chosen(kBeyonds, settings.get_string("head.beyond"));
  scoring.margin.gradient = chosen(kGradients, settings.get_string("head.gradient"));
  scoring.filter = settings.get_float("head.filter");
  scoring.smoothing = settings.get_float("head.smoothing");
  check_scoring(scoring, *head.kind, numbers);
  return scoring;
}

std::optional<classifier::Sampling> read_sampling(const settings::Settings& settings) {
  const double rate = settings.get_float("head.sample");
  if (rate == 1.0) return std::nullopt;
  return classifier::Sampling{rate, settings.get_bool("head.log_q")};
}

/// One of the words for several axes, or some axes, each once.
parallel::Axes read_over(const std::vector<std::string>& names) {
  parallel::Axes over;
  bool is_right = !names.empty();
  for (const auto& name : names) {
    const auto axes = chosen(kOvers, name);
    const bool is_axis = name != "all" && name != "last";
    is_right = is_right && (over & axes).empty() && (names.size() == 1 || is_axis);
    over = over | axes;
  }
  if (is_right) return over;
  throw SettingsError("head.over is " + (names.empty() ? "empty" : settings::format_value(names)) +
                          ", wanted all, last, or axes, each once",
                      "use head.over=all");
}

/// With a pipeline, of a form without passes: `all` are those at its last stage, where the features are.
parallel::Axes at_last_stage(parallel::Axes over, const HeadForm& form, const settings::Settings& settings) {
  constexpr parallel::Axes kPipeline = {parallel::Axis::pipeline};
  if (!form.is_whole && over != parallel::Axes::all() && over.has(parallel::Axis::pipeline)) {
    throw SettingsError("head.over is " + settings::format_value(settings.get("head.over")) + " with head.parallel=" +
                            std::string(form.name) + ", whose classes are at the last stage of a pipeline alone, " +
                            "wanted axes without pipeline",
                        "use head.over=last, or head.parallel=sharded");
  }
  return over - kPipeline;
}

void read_head(settings::Settings& settings, Job& job) {
  auto& head = job.head;
  head.kind = std::ranges::find(kHeadKinds, settings.get_string("head"), &HeadKind::name);
  head.classes = settings.get_int("head.classes");
  if (head.kind->anneals) {
    const auto numbers = read_numbers<4>(settings, "head.anneal");
    head.annealing = {.base = numbers[0], .gamma = numbers[1], .power = numbers[2], .least = numbers[3]};
  }
  head.form = &head_form(settings.get_string("head.parallel"));
  head.over = read_over(settings.get_list("head.over"));
  if (job.parallel.pipeline > 1 && !head.form->has_passes) head.over = at_last_stage(head.over, *head.form, settings);
  const auto sampling = read_sampling(settings);
  head.options.dim = job.model.features;
  head.options.scoring = read_scoring(settings, head);
  head.options.naive = head.form->gathers_scores;
  head.options.blocks = {.keep_bytes = parse_bytes(settings.get_string("head.keep_bytes")).value(),
                         .bf16 = chosen(kProducts, settings.get_string("head.precision"))};
  if (divides_head(job)) head.options.blocks.keep_bytes = 0;
  if (head.form->updates_rows) head.options.sampling = sampling;
  head.steps_in_backward = settings.get_bool("head.fused_update") && head.form->updates_rows;
  head.moves_all_rows = head.options.sampling && chosen(kLazy, settings.get_string("head.lazy"));
}

const std::vector<IdleRule> kIdle = {
    {{"head.margin"},
     [](const Job& job) { return !job.head.kind->has_margin; },
     "except with head=cosface and head=arcface"},
    {{"head.margins"}, [](const Job& job) { return !job.head.kind->has_margins; }, "except with head=combined"},
    {{"head.factor", "head.anneal"},
     [](const Job& job) { return !job.head.kind->anneals; },
     "except with head=sphereface and head=l-softmax"},
    {{"head.scale"},
     [](const Job& job) { return !job.head.kind->has_scale; },
     "with head=softmax, linear, sphereface and l-softmax"},
    {{"head.beyond"},
     [](const Job& job) { return !job.head.kind->changes_angle; },
     "with head=softmax, linear, normalised and cosface, which change no angle"},
    {{"head.gradient"},
     [](const Job& job) { return !job.head.kind->changes_angle; },
     "with head=softmax, linear, normalised and cosface"},
    {{"head.keep_bytes", "head.fused_update", "head.precision", "head.sample"},
     [](const Job& job) { return job.head.form->gathers_scores; },
     "with head.parallel=naive"},
    {{"head.fused_update", "head.over"},
     [](const Job& job) { return job.head.form->is_whole; },
     "with head.parallel=replicated"},
    {{"head.over"}, [](const Job& job) { return job.parallel.ranks == 1; }, "with one rank"},
    {{"head.keep_bytes"}, divides_head, "with classes over the ranks of a pipeline"},
    {{"head.precision"},
     [](const Job& job) { return job.training.precision.type == at::kDouble; },
     "with train.precision=float64"},
    {{"head.log_q", "head.lazy"},
     [](const Job& job) { return !job.head.options.sampling; },
     "while all classes are scored"},
};

}  // namespace

std::span<const HeadForm> head_forms() { return kForms; }

const HeadForm& head_form(std::string_view name) { return *std::ranges::find(kForms, name, &HeadForm::name); }

const Section& head_section() {
  static const auto forms = docs_of(kForms);
  static const Section section = {
      .rows =
          {{.key = "head",
            .default_value = text("cosface"),
            .doc = "loss of the classifier",
            .choices = names_of(kHeadKinds),
            .aliases = {{"am-softmax", "cosface"}, {"a-softmax", "sphereface"}, {"normalized", "normalised"}}},
           {"head.classes", int64_t{0}, "number of classes of the head; 0: as many as the data has", kCount},
           {.key = "head.parallel",
            .default_value = text(kForms.front().name),
            .doc = forms,
            .choices = names_of(kForms)},
           {.key = "head.over",
            .default_value = std::vector<std::string>{"last"},
            .doc =
                "axes of the mesh over whose ranks the classes are split, one or several with commas; ranks along the "
                "others hold copies; all: also over the stages of a pipeline; last: all but pipeline, at its last "
                "stage",
            .choices = names_of(kOvers)},
           {"head.margin", 0.2,
            "cosface: margin subtracted from the target's cosine; arcface: margin added to the target's angle, in "
            "radians",
            kNotNegative},
           {"head.margins", std::vector<double>{1, 0.3, 0.2},
            "combined: three margins m1,m2,m3; the target's cosine becomes cos(m1 * angle + m2) - m3", kNotNegative},
           {"head.factor", 4.0, "sphereface and l-softmax: factor of the target's angle", kPositive},
           {"head.anneal", std::vector<double>{1500, 0.1, 1, 5},
            "sphereface and l-softmax: four numbers a,b,c,d; the weight of the plain cosine beside the margin is "
            "max(d, a * (1 + b * step)^-c)",
            kNotNegative},
           {"head.scale", 24.0, "normalised, cosface, arcface and combined: factor of the cosines", kPositive},
           {.key = "head.beyond",
            .default_value = text("extend"),
            .doc = "target's score if the margin takes its angle past pi; extend: keeps falling; cosine: rises again; "
                   "linear: falls along a line; easy: no margin where the cosine is negative; clamp: stays",
            .choices = names_of(kBeyonds)},
           {.key = "head.gradient",
            .default_value = text("exact"),
            .doc =
                "derivative of the margin; exact: the true derivative; detached: 1, as if the margin were a constant",
            .choices = names_of(kGradients)},
           {"head.filter",
            1.0,
            "for noisy labels: scores of other classes with a cosine above this count as 0; 1: no filter",
            {-1, 1, true}},
           {"head.smoothing", 0.0, "label smoothing over all classes", kDecay},
           {"head.sample",
            1.0,
            "fraction of the classes that each step scores, besides the classes of the batch; 1: all",
            {0, 1, true}},
           {"head.log_q", false,
            "multiply the exponentials of sampled classes by 1 / head.sample, so that their expected sum is that of "
            "all classes"},
           {.key = "head.lazy",
            .default_value = text("off"),
            .doc = "update of classes that a step does not score; off: none; exact: when a class is next used, apply "
                   "the SGD momentum and weight decay that it missed",
            .choices = names_of(kLazy)},
           {"head.fused_update", false,
            "update the head's weight inside backward, block by block, so that its gradient is never stored"},
           {.key = "head.precision",
            .default_value = text("float32"),
            .doc = "type of the head's matrix products; sums, losses and weights follow train.precision",
            .choices = names_of(kProducts)},
           {.key = "head.keep_bytes",
            .default_value = text("128M"),
            .doc = "bytes of scores that a rank keeps for backward; other scores are recomputed",
            .other = settings::kSizes}},
      .read = read_head,
      .idle = kIdle,
      .identity = {"head", "head.margin", "head.margins", "head.factor", "head.anneal", "head.scale", "head.beyond",
                   "head.gradient", "head.filter", "head.smoothing", "head.sample", "head.log_q", "head.lazy",
                   "head.precision"}};
  return section;
}

}  // namespace tandem::job
