#pragma once
#include <algorithm>

#include "tandem/job/job.h"
#include "tandem/job/sections/section.h"
#include "tests/data/patterns.h"

namespace tandem::job {

using test::Patterns;
using Words = std::vector<std::string>;

inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline Job job_of(const std::vector<std::string>& words) {
  settings::Settings settings(schema());
  settings.apply(words);
  return read_job(settings);
}

}  // namespace tandem::job
