#pragma once
#include <string>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/evaluation/lfw.h"
#include "tandem/evaluation/retrieval.h"
#include "tandem/job/job.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// How well the task's features find identities that were not learned. Collective.
evaluation::RetrievalScores retrieval_scores(const Job& job, train::Task& task, const data::Retrieval& retrieval,
                                             comm::ProcessGroup& group);

struct PairScores {
  std::string file;
  int64_t pairs = 0;
  evaluation::LfwScores lfw;
};

/// Each of the job's files of pairs by LFW's protocol, the features of an image and of its mirror image added.
/// Collective.
std::vector<PairScores> pair_scores(const Job& job, train::Task& task, comm::ProcessGroup& group);

/// Opens the files of pairs, so that a bad one is told before long work. Throws as data::verification_pairs(), and
/// DataError for pairs that cannot be scored.
void check_pairs(const Job& job);

}  // namespace tandem::job
