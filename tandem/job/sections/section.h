#pragma once
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/settings/settings.h"

namespace tandem::job {

struct Job;

/// The settings `keys` have no effect in a job for which `without` returns true. (Those of another strategy than the
/// job's, by Strategy::settings, have none without a rule.)
struct IdleRule {
  std::vector<std::string_view> keys;
  bool (*without)(const Job& job);
  std::string_view why;  // ends the line "KEY has no effect ..."
};

/// One group of a job's settings, defined in one file. A new setting is a row in `rows`, a line in `read`, a name in
/// `identity` if another value makes another model, and a rule in `idle` if it can be without effect.
struct Section {
  std::vector<settings::Setting> rows;

  /// Fills the section's part of the job. Values that are chosen for the user are written to `settings`.
  void (*read)(settings::Settings& settings, Job& job);

  /// Throws SettingsError if the job cannot be trained with these settings. Null: nothing to check.
  void (*check)(const Job& job) = nullptr;

  std::vector<IdleRule> idle = {};

  /// Returns a line about a setting that has no effect without another one; "" if there is none. Null: no such setting.
  std::string (*hint)(const Job& job) = nullptr;

  std::vector<std::string_view> identity = {};  // keys that a checkpoint must share with the job that resumes it

  /// Keys, of any section, that it must share besides in this job. Null: there are none.
  std::vector<std::string_view> (*more_identity)(const Job& job) = nullptr;

  /// Keys that count when a trained model is used: always, or where it is used on data of a known kind.
  std::vector<std::string_view> in_use = {}, in_use_on_data = {};
};

// In the order of the help text.
const Section& parallel_section();
const Section& ddp_section();
const Section& mesh_section();
const Section& pipeline_section();
const Section& fsdp_section();
const Section& ps_section();
const Section& averaging_section();
const Section& data_section();
const Section& model_section();
const Section& head_section();
const Section& search_section();
const Section& training_section();
const Section& optimizer_section();
const Section& schedule_section();
const Section& evaluation_section();
const Section& run_section();
const Section& memory_section();

std::span<const Section* const> sections();

// Ranges that several sections use.
inline constexpr settings::Range kPositive{0, std::numeric_limits<double>::infinity(), true};
inline constexpr settings::Range kNotNegative{0};
inline constexpr settings::Range kSeconds{0, 99999, true};
inline constexpr settings::Range kFraction{0, 1};
inline constexpr settings::Range kDecay{0, 1, false, true};
inline constexpr settings::Range kCount{0, 1e12};

/// The default of a text setting.
inline std::string text(std::string_view value) { return std::string(value); }

}  // namespace tandem::job
