#pragma once
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/settings/settings.h"

namespace tandem::job {

struct Job;

/// `keys` change nothing in a job for which `without` holds.
struct IdleRule {
  std::vector<std::string_view> keys;
  bool (*without)(const Job& job);
  std::string_view why;  // ends the line "KEY has no effect ..."
};

/// One part of a job's settings, whole in one file. A new setting is a row, a line in `read`, a name in `identity` when
/// another value makes another model, and a rule where it can be without effect.
struct Section {
  std::vector<settings::Setting> rows;

  /// Fills the section's part of the job. What the machine decides for the user is written into `settings`.
  void (*read)(settings::Settings& settings, Job& job);

  /// Throws SettingsError for what a training cannot do; null: nothing to check.
  void (*check)(const Job& job) = nullptr;

  std::vector<IdleRule> idle = {};

  /// A line on a setting that lacks another to mean something; "" when none does. Null: none can.
  std::string (*hint)(const Job& job) = nullptr;

  std::vector<std::string_view> identity = {};  // keys that a checkpoint must share with the job that continues it
};

// In the order of the help.
const Section& parallel_section();
const Section& data_section();
const Section& model_section();
const Section& head_section();
const Section& training_section();
const Section& optimizer_section();
const Section& schedule_section();
const Section& evaluation_section();
const Section& run_section();
const Section& memory_section();

std::span<const Section* const> sections();

// What several sections' rows take.
inline constexpr settings::Range kPositive{0, std::numeric_limits<double>::infinity(), true};
inline constexpr settings::Range kNotNegative{0};
inline constexpr settings::Range kSeconds{0, 99999, true};
inline constexpr settings::Range kFraction{0, 1};
inline constexpr settings::Range kDecay{0, 1, false, true};
inline constexpr settings::Range kCount{0, 1e12};

/// The default of a setting that is a text.
inline std::string text(std::string_view value) { return std::string(value); }

}  // namespace tandem::job
