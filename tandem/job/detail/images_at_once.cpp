#include "tandem/job/detail/images_at_once.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/comm/split.h"

namespace tandem::job::detail {
namespace {

/// Whether norms of a few images at a time leave one on its own.
bool leaves_ghost_of_one(const Job& job) {
  if (job.model.norm != models::Norm::ghost) return false;
  const int64_t ghost = job.model.ghost;
  return std::ranges::any_of(images_at_once(job),
                             [&](int64_t images) { return images > 1 && images % ghost == 1 % ghost; });
}

/// " with train.shards 8", " with ranks 2 and train.accumulate 3".
std::string what_cuts(const Job& job, const std::string& with) {
  const auto& training = job.training;
  if (training.shards > 0) return with + "train.shards " + std::to_string(training.shards);
  const auto cut = training.accumulate > 1 ? " and train.accumulate " + std::to_string(training.accumulate) : "";
  return with + "ranks " + std::to_string(job.parallel.parts()) + cut;
}

std::string remedy(const Job& job) {
  if (job.training.shards > 0) return "lower train.shards, or raise train.batch";
  return job.training.accumulate > 1 ? "lower train.accumulate, or raise train.batch" : "raise train.batch";
}

}  // namespace

std::vector<int64_t> images_at_once(const Job& job) {
  const auto& [training, parallel] = std::tie(job.training, job.parallel);
  if (training.shards > 0) return comm::split_sizes(training.batch, static_cast<int>(training.shards));
  std::vector<int64_t> all;
  for (const int64_t own : parallel.shares(parallel.ranks).of(training.batch)) {
    for (const int64_t micro : comm::split_sizes(own, static_cast<int>(training.accumulate))) {
      const auto parts = comm::split_sizes(micro, parallel.strategy->is_one_process ? parallel.parts() : 1);
      all.insert(all.end(), parts.begin(), parts.end());
    }
  }
  return all;
}

void name_single_images(const Job& job, const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::ValueError&) {
    const auto batch = std::to_string(job.training.batch);
    if (leaves_ghost_of_one(job)) {
      throw SettingsError("model.ghost is " + std::to_string(job.model.ghost) + " with train.batch " + batch +
                              what_cuts(job, " and ") + ", which leaves one image on its own, wanted more for model " +
                              job.model.name,
                          "change model.ghost or train.batch");
    }
    const auto images = images_at_once(job);
    if (std::ranges::find(images, 1) == images.end()) throw;
    throw SettingsError("train.batch is " + batch + what_cuts(job, " with ") +
                            ", which leaves one image at a time, wanted more for model " + job.model.name,
                        remedy(job));
  }
}

}  // namespace tandem::job::detail
