#pragma once
#include <span>
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

/// The strategy that `parallel` names, itself or by a shorthand.
std::string_view strategy_name(std::string_view parallel);

/// Sizes of axes that do not divide `ranks` become the default ones, and all ranks stand along the axis of a shorthand.
void fit_mesh(settings::Settings& settings, int ranks);

/// Throws SettingsError if the ranks cannot be arranged as the settings say, or if the classes are not split over all
/// ranks that share a batch.
void check_mesh(const Job& job);

}  // namespace tandem::job
