#pragma once
#include <span>
#include <string>
#include <string_view>

#include "tandem/parallel/placement.h"
#include "tandem/settings/settings.h"

namespace tandem::job {

struct Job;

/// A value of the setting `parallel` that says two things: all ranks stand along one axis, and a strategy.
struct Shorthand {
  std::string_view name, doc;
  std::string_view strategy;
  parallel::Axis axis;
};

std::span<const Shorthand> shorthands();

/// The value that leaves it to a search (auto_plan.h).
inline constexpr std::string_view kAutoPlan = "auto";

/// Whether the job leaves it to a search how its ranks share the work. Its plans are checked, not the job itself.
bool is_auto(const Job& job);

/// Whether it leaves that, or with pipeline.schedule=fit the order of the work, to a search.
bool needs_search(const Job& job);

/// Throws SettingsError if it does: a plan is to be found first.
void check_has_plan(const Job& job);

/// By which setting it does: "parallel is auto" or "pipeline.schedule is fit".
std::string searched_setting(const Job& job);

/// The strategy that `parallel` names, itself or by a shorthand.
std::string_view strategy_name(std::string_view parallel);

/// The setting that says how many ranks stand along an axis: `key`, or `parallel` with a shorthand.
std::string_view setting_of_axis(const Job& job, std::string_view key);

/// For another number of ranks than the settings have: sizes of axes become the default ones if they do not divide
/// `ranks`, and a shorthand becomes the strategy that it stands for, with the size that it stood for.
void fit_mesh(settings::Settings& settings, int ranks);

/// Throws SettingsError if the ranks cannot be arranged as the settings say, or if the classes are not split over all
/// ranks that share a batch.
void check_mesh(const Job& job);

}  // namespace tandem::job
