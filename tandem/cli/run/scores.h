#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/job/feature_scores.h"
#include "tandem/train/scores.h"

// Scores, as results show them.
namespace tandem::cli {

struct FeatureScores {
  std::optional<evaluation::RetrievalScores> retrieval;  // nullopt: the data has no retrieval task
  std::vector<job::PairScores> pairs;
  job::SetScores of_test;  // of the test images
};

/// Computes the scores that the job and its data ask for. Collective.
FeatureScores score_features(const job::Job& job, train::Task& task, const data::Split& data, parallel::Mesh& mesh);

/// {"map", "map_trapezoid", "minp", "cmc": [..], "queries", "valid"}, or null.
nlohmann::json retrieval_json(const FeatureScores& scores);

/// [{"file", "pairs", "accuracy", "accuracy_deviation", "val", "val_deviation", "far"}].
nlohmann::json pairs_json(const FeatureScores& scores);

/// {"fars", "tar", "threshold", "same", "different"}, or null.
nlohmann::json verification_json(const FeatureScores& scores);

/// {"top": {"1": ..}, "mated"}, or null.
nlohmann::json identification_json(const FeatureScores& scores);

/// Lines for a terminal; none for scores that were not asked for.
std::string features_text(const FeatureScores& scores);

/// The fractions: "top-1 98.9 %  top-5 99.6 %".
std::string fractions_text(const train::Scores& scores);

/// Three significant digits, for losses and learning rates.
std::string short_number(double value);

/// Logs a warning on rank 0 about images that any rank has read and found odd. Collective.
void tell_odd_images(const data::Split& data, comm::ProcessGroup& group);

}  // namespace tandem::cli
