#include "tandem/job/pipeline_cut.h"

#include <sstream>

#include "tandem/base/context.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/detail/stage_plan.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"

namespace tandem::job {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

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
  comm::on_leader(group, [&] { own = joined(cut_of(job, shape)); });
  set_cut(job, comm::broadcast_text(own, 0, group));
}

void settle_cut(Job& job, const DataShape& shape) {
  if (job.pipeline.measures_cut) set_cut(job, joined(cut_of(job, shape)));
}

}  // namespace tandem::job
