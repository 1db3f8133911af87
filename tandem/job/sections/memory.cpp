#include "tandem/job/sections/memory.h"

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

void read(settings::Settings& settings, Job& job) {
  job.memory.event_steps = settings.get_int("memory.events");
  const auto ranks = static_cast<size_t>(job.parallel.ranks);
  auto& limits = job.memory.limits;
  for (const auto& size : settings.get_list("memory.limit")) limits.push_back(parse_bytes(size).value());
  if (limits.size() == 1) limits.assign(ranks, limits[0]);
}

void check(const Job& job) {
  if (!job.memory.is_limited()) return;
  if (!job.parallel.device.is_cpu()) {
    throw SettingsError("memory.limit is given with device=cuda, whose allocator does not keep it",
                        "leave one of them out");
  }
  const auto sizes = job.memory.limits.size(), ranks = static_cast<size_t>(job.parallel.ranks);
  if (sizes == ranks) return;
  throw SettingsError("memory.limit has " + std::to_string(sizes) + " sizes, wanted 1" +
                      (ranks == 1 ? "" : " or " + std::to_string(ranks) + ", one a rank"));
}

}  // namespace

const Section& memory_section() {
  static const Section section = {
      .rows = {{.key = "memory.limit",
                .default_value = std::vector<std::string>(),
                .doc = "bytes that each rank may use, such as 8G,16G, or one size for all ranks; the classes of the "
                       "head are split to fit",
                .other = settings::kSizes},
               {"memory.events",
                int64_t{0},
                "first training steps of the run of which each rank writes every allocation to a file; 0: none",
                {0, 1e6}}},
      .read = read,
      .check = check};
  return section;
}

}  // namespace tandem::job
