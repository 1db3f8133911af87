#include "tandem/job/detail/same_settings.h"

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/comm/agree.h"
#include "tandem/settings/value.h"

namespace tandem::job::detail {
namespace {

/// All ranks use rank 0's `out`; `threads` may differ, as machines differ in cores, unless the order of sums must not.
bool may_differ(std::string_view key, const settings::Settings& leader) {
  return key == "out" || (key == "threads" && leader.get_int("train.shards") == 0);
}

}  // namespace

std::string difference_to_leader(const settings::Settings& own, int rank, const settings::Settings& leader) {
  for (const auto& setting : own.schema()) {
    const auto found = settings::format_value(own.get(setting.key)),
               wanted = settings::format_value(leader.get(setting.key));
    if (found == wanted || may_differ(setting.key, leader)) continue;
    return std::string(setting.key) + " is " + quote(found) + " on rank " + std::to_string(rank) + ", wanted " +
           quote(wanted) + " as rank 0 has";
  }
  return "";
}

void check_same_settings(const settings::Settings& settings, comm::ProcessGroup& group) {
  settings::Settings leader(settings.schema());
  leader.load_toml(comm::broadcast_text(settings.to_toml(), 0, group), "rank 0's settings");
  const auto first = comm::first_text(difference_to_leader(settings, group.rank(), leader), group);
  if (!first.empty()) throw SettingsError(first, "start every rank with the same settings");
}

}  // namespace tandem::job::detail
