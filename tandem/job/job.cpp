#include "tandem/job/job.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"
#include "tandem/job/sections/combinations.h"
#include "tandem/job/sections/mesh.h"
#include "tandem/job/sections/presets.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"
#include "tandem/storage/checksum.h"

namespace tandem::job {
namespace {

std::string class_names_checksum(const data::Dataset& dataset) {
  storage::Checksum checksum;
  for (int64_t label = 0; label < dataset.num_classes(); ++label) {
    const auto name = dataset.class_name(label) + '\0';
    checksum.update(std::as_bytes(std::span(name)));
  }
  return checksum.hex();
}

std::vector<std::string_view> identity_keys(const Section& section, const Job& job) {
  auto keys = section.identity;
  if (section.more_identity != nullptr) std::ranges::copy(section.more_identity(job), std::back_inserter(keys));
  return keys;
}

/// "except with parallel=ps" for a setting that only other strategies read (Strategy::settings), else "".
std::string others_setting(const Job& job, std::string_view key) {
  const auto section = key.substr(0, key.find('.'));
  if (section == job.parallel.strategy->settings) return "";
  std::vector<std::string> readers;
  for (const auto& strategy : parallel::strategies()) {
    if (strategy.settings == section) readers.push_back("parallel=" + std::string(strategy.name));
  }
  return readers.empty() ? "" : "except with " + one_of(readers);
}

/// Why a setting has no effect: the end of a line; "" if it has one.
std::string why_idle(const Job& job, std::string_view key) {
  if (auto why = others_setting(job, key); !why.empty()) return why;
  for (const auto* section : sections()) {
    for (const auto& rule : section->idle) {
      if (std::ranges::find(rule.keys, key) != rule.keys.end() && rule.without(job)) return std::string(rule.why);
    }
  }
  return "";
}

}  // namespace

std::span<const Section* const> sections() {
  static const std::vector<const Section*> all = {
      &parallel_section(), &ddp_section(),       &mesh_section(),     &fsdp_section(),   &pipeline_section(),
      &ps_section(),       &averaging_section(), &data_section(),     &model_section(),  &head_section(),
      &training_section(), &optimizer_section(), &schedule_section(), &search_section(), &evaluation_section(),
      &run_section(),      &memory_section()};
  return all;
}

settings::Schema schema() {
  static const auto all = [] {
    std::vector<settings::Setting> rows;
    for (const auto* section : sections()) rows.insert(rows.end(), section->rows.begin(), section->rows.end());
    return rows;
  }();
  return all;
}

std::vector<settings::Setting> settings_for(std::string_view model) {
  settings::Settings chosen(schema());
  chosen.choose("model", model);
  apply_presets(chosen);
  std::vector<settings::Setting> rows(schema().begin(), schema().end());
  for (auto& row : rows) row.default_value = chosen.get(row.key);
  return rows;
}

Job read_job(settings::Settings settings) {
  apply_presets(settings);
  Job job{.settings = std::move(settings)};
  for (const auto* section : sections()) section->read(job.settings, job);
  if (!is_auto(job)) check_mesh(job);
  return job;
}

void check_training(const Job& job) {
  if (is_auto(job)) return;
  check_combinations(job);
  for (const auto* section : sections()) {
    if (section->check != nullptr) section->check(job);
  }
}

void set_ranks(settings::Settings& settings, int ranks) {
  fit_mesh(settings, ranks);
  settings.set("ranks", std::to_string(ranks));
  const auto& over = settings.get_list("head.over");
  const auto names = [&](const char* name) { return std::ranges::find(over, name) != over.end(); };
  settings.set("head.over", names("all") || names("pipeline") ? "all" : "last");
  if (settings.get_list("memory.limit").size() > 1) settings.set("memory.limit", "");
  if (settings.get_int("ps.servers") >= ranks) settings.set("ps.servers", "0");
}

Job with_form(const Job& job, const HeadForm& form) {
  auto settings = job.settings;
  settings.set("head.parallel", form.name);
  return read_job(std::move(settings));
}

std::array<int64_t, 3> shape_for_model(const Job& job, const std::array<int64_t, 3>& shape) {
  if (!job.model.is_identity) return shape;
  if (job.model.embedding == 0) {
    throw SettingsError("embedding is 0 with model " + job.model.name + ", wanted the " +
                        std::to_string(shape[0] * shape[1] * shape[2]) + " numbers of an image");
  }
  return {1, 1, job.model.embedding};
}

void check_best(const Job& job, const data::Split& data) {
  if (job.run.best.empty() || (data.test && data.test->size() > 0)) return;
  throw SettingsError("checkpoint.best is " + job.run.best + " and the data has no test images, wanted none",
                      "glyphs take data.test_fonts, folders a test folder or data.hold_out");
}

DataShape shape_of(const Job& job, const data::Dataset& dataset) {
  const int64_t wanted = job.head.classes;
  if (wanted > 0 && wanted < dataset.num_classes()) {
    throw SettingsError("head.classes is " + std::to_string(wanted) + ", wanted at least " +
                            std::to_string(dataset.num_classes()) + " as the data has",
                        "leave head.classes out");
  }
  return {wanted == 0 ? dataset.num_classes() : wanted, dataset.image_shape()};
}

DataShape shape_of(const Job& job) {
  if (job.head.classes > 0) return {job.head.classes, shape_for_model(job, job.data.source->image_shape(job))};
  auto own = job;
  return shape_of(job, *open_data(own).train);
}

bool is_idle(const Job& job, std::string_view key) { return !why_idle(job, key).empty(); }

std::vector<std::string> idle_settings(const Job& job) {
  if (needs_search(job)) return {};
  std::vector<std::string> lines;
  for (const auto& setting : schema()) {
    if (!job.settings.given(setting.key) || job.settings.is_default(setting.key)) continue;
    if (const auto why = why_idle(job, setting.key); !why.empty()) {
      lines.push_back(std::string(setting.key) + " has no effect " + why);
    }
  }
  for (const auto* section : sections()) {
    if (section->hint == nullptr) continue;
    if (const auto line = section->hint(job); !line.empty()) lines.push_back(line);
  }
  return lines;
}

storage::Identity identity(const Job& job, const data::Dataset& dataset) {
  const settings::Settings defaults(schema());
  storage::Identity result;
  for (const auto* section : sections()) {
    for (const auto key : identity_keys(*section, job)) {
      const auto& settings = is_idle(job, key) ? defaults : job.settings;
      result.emplace_back(key, settings::format_value(settings.get(key)));
    }
  }
  if (job.data.source->has_folder) {
    std::ranges::find(result, "data", &storage::Identity::value_type::first)->second = job.data.source->name;
    result.emplace_back("class_names", class_names_checksum(dataset));
  }
  result.emplace_back("classes", std::to_string(shape_of(job, dataset).classes));
  result.emplace_back("images", std::to_string(dataset.size()));
  return result;
}

storage::Identity shared_identity(const Job& job, storage::Identity identity) {
  std::erase_if(identity, [&](const auto& entry) { return is_idle(job, entry.first); });
  return identity;
}

storage::Identity weights_identity(const Job& job, storage::Identity identity) {
  identity = shared_identity(job, std::move(identity));
  std::erase_if(identity, [&](const auto& entry) {
    const auto is_of = [&](const Section& section) {
      return std::ranges::count(identity_keys(section, job), entry.first) > 0;
    };
    return entry.first == "images" || is_of(training_section()) || is_of(optimizer_section());
  });
  return identity;
}

}  // namespace tandem::job
