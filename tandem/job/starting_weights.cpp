#include "tandem/job/starting_weights.h"

#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/sections/naming.h"
#include "tandem/train/starting_weights.h"
#include "tandem/train/stored_tensors.h"
#include "tandem/train/weights_file.h"

namespace tandem::job {
namespace {

/// torchvision's models have no embedding, and other data have other classes.
const train::WeightRoles kRoles = {.may_miss = {"head.", "embedding.", "embedding_bn."}, .may_differ = {"head."}};

void tell(const train::StoredTensors& files, const train::WeightMatch& match, const std::string& file,
          const std::vector<train::Parameter>& weights) {
  const auto read = match.stored.size() - match.other_sizes.size();
  log::info("weights  " + format_count(static_cast<int64_t>(read)) + " tensors of " + file);
  for (const auto& line : lines_of(match, files, weights)) log::info("weights  " + line);
}

}  // namespace

void check_weights(const Job& job) {
  if (job.model.weights.empty()) return;
  naming_settings({"model"}, [&] { train::open_weights(train::locate_weights(job.model.weights)); });
}

void start_from_weights(const Job& job, const train::Task& task, comm::ProcessGroup& group) {
  if (job.model.weights.empty()) return;
  std::string file;
  comm::on_leader(
      group, [&] { naming_settings({"model"}, [&] { file = train::locate_weights(job.model.weights).string(); }); });
  file = comm::broadcast_text(file, 0, group);
  const auto fill = [&] {
    const auto weights = task.weights();
    const auto files = train::open_weights(file);
    const auto match = train::match_weights(files, file, weights, kRoles, job.model.weights_prefix);
    train::fill_weights(files, match, weights);
    if (group.rank() == 0) tell(files, match, file, weights);
  };
  comm::jointly(group, [&] { naming_settings({"model"}, fill); });
}

}  // namespace tandem::job
