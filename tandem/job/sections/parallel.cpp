#include "tandem/job/sections/parallel.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/section.h"
#include "tandem/rendezvous/environment.h"

namespace tandem::job {
namespace {

constexpr std::array<Choice<c10::DeviceType>, 2> kDevices = {
    {{"cpu", c10::DeviceType::CPU}, {"cuda", c10::DeviceType::CUDA}}};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, std::llround(seconds * 1000)));
}

/// As many ranks as the launcher has started; without a launcher, as `ranks` says.
int world_size(const settings::Settings& settings) {
  const auto ranks = settings.get_int("ranks");
  const auto launch = rendezvous::detect_launch();
  if (!launch || launch->size == 1) return static_cast<int>(ranks);
  if (settings.given("ranks") && ranks != launch->size) {
    throw SettingsError("ranks is " + std::to_string(ranks) + ", wanted " + std::to_string(launch->size) + " as " +
                            launch->launcher + " has started",
                        "leave ranks out");
  }
  return launch->size;
}

/// A backward pass on a GPU runs on one thread per GPU and process: ranks of one process would wait for each other
/// there for ever.
void check_cuda(int ranks) {
  const auto launch = rendezvous::detect_launch();
  if (ranks > 1 && !(launch && launch->size > 1)) {
    throw SettingsError("ranks is " + std::to_string(ranks) + " with device=cuda, wanted 1 in a process",
                        "use tandem launch -n " + std::to_string(ranks) + " -- tandem train device=cuda ...");
  }
  if (at::hasCUDA()) return;
  throw SettingsError("device is cuda, and no GPU is found, wanted cpu",
                      "leave device out, or use a build with TANDEM_CUDA=ON on a machine with a GPU");
}

std::string strategies_doc() {
  std::string doc = "how the ranks share the work";
  for (const auto& strategy : parallel::strategies()) {
    doc.append("; ").append(strategy.name).append(": ").append(strategy.doc);
  }
  return doc;
}

void read(settings::Settings& settings, Job& job) {
  job.parallel = {.ranks = world_size(settings),
                  .threads = static_cast<int>(settings.get_int("threads")),
                  .device = chosen(kDevices, settings.get_string("device")),
                  .strategy = &parallel::strategy_of(settings.get_string("parallel")),
                  .init_timeout = milliseconds(settings.get_float("comm.init_timeout")),
                  .timeout = milliseconds(settings.get_float("comm.timeout")),
                  .check = settings.get_bool("comm.check")};
  if (job.parallel.device.is_cuda()) check_cuda(job.parallel.ranks);
  settings.set("ranks", std::to_string(job.parallel.ranks));
}

}  // namespace

const Section& parallel_section() {
  static const auto strategies = strategies_doc();
  static const Section section = {
      .rows =
          {{"ranks",
            int64_t{1},
            "ranks that train together in this process; omit under a launcher, where another number is an error",
            {1, 1024}},
           {"threads", int64_t{0}, "compute threads per rank; 0: cores / ranks", {0, 1024}},
           {.key = "device",
            .default_value = text("cpu"),
            .doc = "where a rank computes; cuda: on a GPU, one rank a process",
            .choices = names_of(kDevices)},
           {.key = "parallel",
            .default_value = text(parallel::strategies().front().name),
            .doc = strategies,
            .choices = names_of(parallel::strategies())},
           {"comm.init_timeout", 300.0, "seconds that ranks wait for each other at the start", kSeconds},
           {"comm.timeout", 120.0, "seconds that ranks wait for each other in an operation", kSeconds},
           {"comm.check", false,
            "compare every collective call with the calls of the other ranks before it is made; slow, for debugging"}},
      .read = read,
      .idle = {{{"comm.check"}, [](const Job& job) { return job.parallel.ranks == 1; }, "with one rank"}}};
  return section;
}

}  // namespace tandem::job
