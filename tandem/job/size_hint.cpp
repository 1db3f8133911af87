#include "tandem/job/size_hint.h"

namespace tandem::job {

std::string size_hint(const Job& job, const data::Split& data) {
  constexpr int64_t kSeveral = 3;
  if (job.settings.given("data.size") || data.stored_side < kSeveral * job.data.size) return "";
  return "images have " + std::to_string(data.stored_side) +
         " pixels on their shorter side (median) and are scaled to " + std::to_string(job.data.size) +
         ", which suits characters: a larger data.size keeps more of a photograph";
}

}  // namespace tandem::job
