#include "tests/job/step_peaks.h"

#include "tandem/job/parts.h"
#include "tandem/job/rank_memory.h"
#include "tandem/job/recomputation.h"
#include "tandem/memory/device_meter.h"
#include "tandem/memory/meter.h"
#include "tests/job/job_of.h"

namespace tandem::job {

std::vector<Peaks> peaks_of(std::vector<std::string> words, const data::Dataset& patterns, comm::WorldOptions world) {
  memory::install_meter();
  words.insert(words.end(), {"train.steps=4", "threads=1"});
  auto job = job_of(words);
  job.parallel.device = job.head.options.device = world.device.type();
  memory::meter_memory_of(job.parallel.device.type());
  job.parallel.transport = world.transport.value_or(comm::Transport::memory);
  const auto shape = shape_of(job, patterns);
  std::vector<Peaks> peaks(static_cast<size_t>(job.parallel.ranks));
  world.threads = 1;
  comm::run_ranks(
      job.parallel.ranks,
      [&](comm::ProcessGroup& group) {
        auto& own = peaks[static_cast<size_t>(group.rank())];
        const auto loader = training_loader(job, patterns, group);
        const TaskPlan plan{even_counts(job, shape.classes, group.size()),
                            choose_recomputation(job, shape, group).plan};
        const int64_t batches = loader->batches_per_epoch();
        own.predicted = rehearse_rank(job, shape, group.rank(), plan, {batches}).step.account.peak_bytes();
        const auto [mesh, task, trace, step, search] = assemble(job, shape, plan, group);
        train::Trainer trainer(*step, *loader, nullptr, trainer_options(job, batches), nullptr, group);
        train::Observer nobody;
        own.measured = trainer.run(nobody).memory.peak_bytes();
      },
      world);
  return peaks;
}

}  // namespace tandem::job
