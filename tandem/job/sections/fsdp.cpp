#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"

// Settings of sharded parameters.
namespace tandem::job {
namespace {

constexpr int kMostNeighbours = 1024;

std::optional<std::string> read_neighbours(std::string_view text) {
  const auto count = settings::read_integer(text);
  if (!count || *count < 2 || *count > kMostNeighbours) return std::nullopt;
  return std::to_string(*count);
}

/// As FullyShardOptions::reshard has it.
int neighbours_of(const std::string& text) {
  if (text == "true") return 0;
  return text == "false" ? 1 : std::stoi(text);
}

void read_fsdp(settings::Settings& settings, Job& job) {
  auto& fsdp = job.parallel.strategy_options.fsdp;
  fsdp.reshard = neighbours_of(settings.get_string("fsdp.reshard"));
  fsdp.prefetch = settings.get_bool("fsdp.prefetch");
}

}  // namespace

const Section& fsdp_section() {
  static const Section section = {
      .rows = {{.key = "fsdp.reshard",
                .default_value = text("true"),
                .doc =
                    "release a block after forward, and gather it again for backward; N: from N neighbours, a divisor "
                    "of the ranks that divide the parameters, which keep parts of it meanwhile",
                .choices = {"true", "false"},
                .aliases = {{"yes", "true"}, {"on", "true"}, {"no", "false"}, {"off", "false"}},
                .other = {"a whole number 2..1024", read_neighbours}},
               {"fsdp.prefetch", true, "gather the next block while one runs"}},
      .read = read_fsdp};
  return section;
}

}  // namespace tandem::job
