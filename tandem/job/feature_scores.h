#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tandem/evaluation/all_pairs.h"
#include "tandem/evaluation/identification.h"
#include "tandem/evaluation/lfw.h"
#include "tandem/evaluation/retrieval.h"
#include "tandem/job/job.h"
#include "tandem/parallel/mesh.h"
#include "tandem/train/task.h"

namespace tandem::job {

/// Retrieval scores of the task's features for identities that are not in the training data. Collective.
evaluation::RetrievalScores retrieval_scores(const Job& job, train::Task& task, const data::Retrieval& retrieval,
                                             parallel::Mesh& mesh);

/// Scores of the features of a labelled set.
struct SetScores {
  std::optional<evaluation::AllPairsScores> verification;
  std::optional<evaluation::IdentificationScores> identification;
};

/// Those that the job asks for. Verification compares each image with every other one; identification searches all but
/// the first image of each class among these first ones. Collective.
SetScores set_scores(const Job& job, train::Task& task, const data::Dataset& images, parallel::Mesh& mesh);

struct PairScores {
  std::string file;
  int64_t pairs = 0;
  evaluation::LfwScores lfw;
};

/// Scores each of the job's files of pairs by LFW's protocol. The feature of an image is the sum of the features of the
/// image and of its mirror image. Collective.
std::vector<PairScores> pair_scores(const Job& job, train::Task& task, parallel::Mesh& mesh);

/// Opens the files of pairs, so that a bad file is reported before long work. Throws as data::verification_pairs(), and
/// DataError if the pairs cannot be scored.
void check_pairs(const Job& job);

}  // namespace tandem::job
