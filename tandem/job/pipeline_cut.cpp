#include "tandem/job/pipeline_cut.h"

#include <sstream>

#include "tandem/base/context.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/detail/stage_plan.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream words(text);
  for (std::string name; std::getline(words, name, ',');) names.push_back(name);
  return names;
}

void set_cut(Job& job, const std::string& names) {
  job.pipeline.cut = names_in(names);
  job.pipeline.measures_cut = false;
}

}  // namespace

std::vector<std::string> cut_of(const Job& job, const DataShape& shape) {
  if (job.parallel.pipeline == 1) return {};
  const memory::ProbeScope aside;
  const auto group = comm::make_rehearsal_group(0, job.parallel.ranks, job.parallel.transport);
  const auto by = job.pipeline.measures_cut ? CutBy::time : CutBy::work;
  return plan_stages(job, shape, *make_mesh(job, *group), by).cut;
}

void settle_cut(Job& job, const DataShape& shape, comm::ProcessGroup& group) {
  if (!job.pipeline.measures_cut) return;
  std::string own;
  comm::on_leader(group, [&] { own = settings::format_value(cut_of(job, shape)); });
  set_cut(job, comm::broadcast_text(own, 0, group));
}

void settle_cut(Job& job, const DataShape& shape) {
  if (job.pipeline.measures_cut) set_cut(job, settings::format_value(cut_of(job, shape)));
}

}  // namespace tandem::job
