#include "tandem/job/sections/search.h"

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/section.h"
#include "tandem/models/model.h"
#include "tandem/models/search_method.h"

namespace tandem::job {
namespace {

using search::Product;

constexpr std::array<Choice<Product>, 2> kProductKinds = {{{"exact", Product::exact}, {"fd", Product::differences}}};
constexpr std::array<Choice<bool>, 2> kTaken = {{{"last", false}, {"best", true}}};

void read_search(settings::Settings& settings, Job& job) {
  if (!models::is_supernet(job.model.name)) return;
  Search search{.space = models::space_of(job.model.name.substr(models::kSearchPrefix.size())),
                .architect = {.order = static_cast<int>(settings.get_int("search.order")),
                              .product = chosen(kProductKinds, settings.get_string("search.hvp")),
                              .radius = settings.get_float("search.radius")},
                .alphas = search::SearchStepOptions::alphas_optimizer(),
                .rate = settings.get_float("search.lr"),
                .warmup = settings.get_float("search.warmup"),
                .share = settings.get_float("search.share"),
                .is_guarded = settings.get_bool("search.guard"),
                .takes_best = chosen(kTaken, settings.get_string("search.genotype"))};
  search.alphas.weight_decay = settings.get_float("search.weight_decay");
  job.head.options.differentiates_twice = needs_second_derivatives(search) && job.head.form->differentiates_twice;
  job.search = search;
}

bool is_no_search(const Job& job) { return !job.search; }

bool leaves_no_channels_out(const Job& job) {
  return !job.search || !models::search_method(job.model.search_method).is_partial;
}

std::vector<std::string_view> names_of_methods() {
  std::vector<std::string_view> names;
  for (const auto& method : models::search_methods()) names.push_back(method.name);
  return names;
}

/// Lives as long as the table of settings, which views it.
std::string_view doc_of_methods() {
  static const std::string doc = [] {
    std::string text = "how an edge is made of its operations";
    for (const auto& method : models::search_methods()) {
      text += "; " + std::string(method.name) + ": " + std::string(method.doc);
    }
    return text;
  }();
  return doc;
}

std::vector<std::string_view> identity_of_search(const Job& job) {
  if (!job.search) return {};
  std::vector<std::string_view> keys = {"search.method", "search.order", "search.share", "search.guard"};
  if (!leaves_no_channels_out(job)) keys.push_back("search.partial");
  return keys;
}

void check_search(const Job& job) {
  if (!job.search) return;
  const auto refuse = [](const std::string& fault, const std::string& remedy) { throw SettingsError(fault, remedy); };
  if (!job.parallel.strategy->has_whole_state) {
    refuse("parallel is " + std::string(job.parallel.strategy->name) + " in a search, wanted ddp",
           "the alphas need all weights, and the optimizer's state, on each rank");
  }
  if (job.search->architect.order == 2 && job.optimizer.kind != train::OptimizerKind::sgd) {
    refuse("train.optimizer is " + job.settings.get_string("train.optimizer") + " with search.order=2, wanted sgd",
           "the gradient of the alphas is that of a step of SGD; search.order=1 takes any optimizer");
  }
  if (job.search->architect.order == 2 && !job.optimizer.groups.empty()) {
    refuse("train.decay_norms is false with search.order=2, wanted true", "or use search.order=1");
  }
  if (!job.head.form->differentiates_twice) {
    refuse("head.parallel is " + std::string(job.head.form->name) + " in a search, wanted replicated",
           "the alphas need all weights, and second derivatives, on each rank");
  }
  const bool leaves_out = models::search_method(job.model.search_method).leaves_out;
  if (leaves_out && !job.parallel.strategy_options.ddp.find_unused_parameters) {
    refuse("ddp.unused is " + job.settings.get_string("ddp.unused") + " with search.method=" + job.model.search_method +
               ", wanted find",
           "each step leaves out the operations that it has not drawn");
  }
  for (const auto& prefix : job.model.freeze) {
    if (!std::string(models::kAlphas).starts_with(prefix) && !prefix.starts_with(models::kAlphas)) continue;
    refuse("model.freeze has " + quote(prefix) + " in a search, wanted other parameters",
           "the alphas are what a search moves; search.lr=0 leaves them as they are");
  }
  if (!needs_second_derivatives(*job.search)) return;
  const std::string why = job.search->is_guarded ? " with search.guard" : " with search.hvp=exact";
  if (!classifier::is_plain_softmax(job.head.options.scoring)) {
    refuse("head is " + job.settings.get_string("head") + why + ", wanted linear or softmax",
           "its loss has no second derivatives; search.hvp=fd and search.order=1 need none");
  }
}

}  // namespace

bool needs_second_derivatives(const Search& search) {
  return search.is_guarded || (search.architect.order == 2 && search.architect.product == Product::exact);
}

const Section& search_section() {
  static const Section section = {
      .rows =
          {{.key = "search.method",
            .default_value = text("darts"),
            .doc = doc_of_methods(),
            .choices = names_of_methods()},
           {"search.partial",
            int64_t{4},
            "search.method=pc-darts: one of so many channels goes through the operations, the others by them",
            {2, 64}},
           {"search.order",
            int64_t{2},
            "what moves the alphas; 2: the validation loss after a step of the weights; 1: as the weights are",
            {1, 2}},
           {.key = "search.hvp",
            .default_value = text("exact"),
            .doc = "search.order=2: the product of second derivatives with a vector; exact: the gradient of a "
                   "derivative; fd: by finite differences, with less memory, and far off with ReLU",
            .choices = names_of(kProductKinds)},
           {"search.radius", 0.01, "search.hvp=fd: how far the weights are moved, in all", {1e-9, 1e3}},
           {"search.lr", 3e-4, "learning rate of the alphas, whose optimizer is Adam of betas 0.5 and 0.999", {0, 100}},
           {"search.weight_decay", 1e-3, "weight decay of the alphas, added to their gradient", {0, 1e6}},
           {"search.warmup", 0.0, "epochs in which weights alone are trained", kNotNegative},
           {"search.share",
            0.5,
            "share of the training images that weights are trained on; the others are for alphas and tests; 1: "
            "these are the data's test images",
            {0, 1, true}},
           {"search.guard", false,
            "watch the curvature of the validation loss after each test: if it rises by 1.3 over 4 tests, from "
            "the tenth on, the alphas go back to those before and stay"},
           {.key = "search.genotype",
            .default_value = text("last"),
            .doc = "the cells that a search finds are those of its last step, or of the test with the best "
                   "accuracy",
            .choices = names_of(kTaken)}},
      .read = read_search,
      .check = check_search,
      .idle = {{{"search.method", "search.order", "search.lr", "search.weight_decay", "search.warmup", "search.share",
                 "search.guard", "search.genotype"},
                is_no_search,
                "except in a search"},
               {{"search.partial"}, leaves_no_channels_out, "except with search.method=pc-darts"},
               {{"search.hvp"},
                [](const Job& job) { return !job.search || job.search->architect.order == 1; },
                "except with search.order=2"},
               {{"search.radius"},
                [](const Job& job) {
                  return !job.search || job.search->architect.order == 1 ||
                         job.search->architect.product == Product::exact;
                },
                "except with search.hvp=fd"}},
      .more_identity = identity_of_search};
  return section;
}

}  // namespace tandem::job
