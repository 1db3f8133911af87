#include "tandem/cli/run/scores.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/job/odd_images.h"

namespace tandem::cli {

FeatureScores score_features(const job::Job& job, train::Task& task, const data::Split& data, parallel::Mesh& mesh) {
  FeatureScores scores;
  if (data.retrieval) scores.retrieval = job::retrieval_scores(job, task, *data.retrieval, mesh);
  scores.pairs = job::pair_scores(job, task, mesh);
  if (data.test && data.test->size() > 0) scores.of_test = job::set_scores(job, task, *data.test, mesh);
  return scores;
}

nlohmann::json retrieval_json(const FeatureScores& scores) {
  if (!scores.retrieval) return nullptr;
  const auto& retrieval = *scores.retrieval;
  return {{"map", retrieval.mean_ap},         {"map_trapezoid", retrieval.mean_ap_trapezoid},
          {"minp", retrieval.mean_inp},       {"cmc", retrieval.cmc},
          {"queries", retrieval.num_queries}, {"valid", retrieval.num_valid}};
}

nlohmann::json pairs_json(const FeatureScores& scores) {
  auto all = nlohmann::json::array();
  for (const auto& [file, pairs, lfw] : scores.pairs) {
    all.push_back({{"file", file},
                   {"pairs", pairs},
                   {"accuracy", lfw.accuracy},
                   {"accuracy_deviation", lfw.accuracy_deviation},
                   {"val", lfw.val},
                   {"val_deviation", lfw.val_deviation},
                   {"far", lfw.far}});
  }
  return all;
}

nlohmann::json verification_json(const FeatureScores& scores) {
  if (!scores.of_test.verification) return nullptr;
  const auto& found = *scores.of_test.verification;
  auto thresholds = nlohmann::json::array();
  for (const double one : found.threshold) {
    thresholds.push_back(std::isfinite(one) ? nlohmann::json(one) : nlohmann::json());
  }
  return {{"fars", evaluation::AllPairsOptions().fars},
          {"tar", found.tar},
          {"threshold", thresholds},
          {"same", found.num_same},
          {"different", found.num_different}};
}

nlohmann::json identification_json(const FeatureScores& scores) {
  if (!scores.of_test.identification) return nullptr;
  const auto& found = *scores.of_test.identification;
  nlohmann::json top;
  const auto places = evaluation::IdentificationOptions().top;
  for (size_t i = 0; i < places.size(); ++i) top[std::to_string(places[i])] = found.top[i];
  return {{"top", top}, {"mated", found.num_mated}};
}

std::string features_text(const FeatureScores& scores) {
  std::string text;
  if (const auto& retrieval = scores.retrieval) {
    text += "retrieval mAP " + format_percent(retrieval->mean_ap) + "  rank-1 " + format_percent(retrieval->cmc[0]) +
            "  rank-5 " + format_percent(retrieval->cmc[4]) + "  mINP " + format_percent(retrieval->mean_inp) + "  (" +
            std::to_string(retrieval->num_valid) + " of " + std::to_string(retrieval->num_queries) + " queries)\n";
  }
  if (const auto& found = scores.of_test.verification) {
    const auto fars = evaluation::AllPairsOptions().fars;
    text += "verified ";
    for (size_t i = 0; i < fars.size(); ++i) {
      text += "TAR " + format_percent(found->tar[i]) + " at FAR " + short_number(fars[i]) + "  ";
    }
    text += "(" + format_count(found->num_same) + " same pairs, " + format_count(found->num_different) + " others)\n";
  }
  if (const auto& found = scores.of_test.identification) {
    const auto places = evaluation::IdentificationOptions().top;
    text += "found    ";
    for (size_t i = 0; i < places.size(); ++i) {
      text += "rank-" + std::to_string(places[i]) + " " + format_percent(found->top[i]) + "  ";
    }
    text += "(" + format_count(found->num_mated) + " images, among one of each class)\n";
  }
  for (const auto& [file, pairs, lfw] : scores.pairs) {
    text += "pairs    " + file + ": accuracy " + format_percent(lfw.accuracy) + " ± " +
            format_percent(lfw.accuracy_deviation) + "  VAL " + format_percent(lfw.val) + " at FAR " +
            format_percent(lfw.far) + "\n";
  }
  return text;
}

std::string fractions_text(const train::Scores& scores) {
  std::string text;
  for (const auto& score : scores.list) {
    if (score.unit != train::ScoreUnit::fraction) continue;
    text += (text.empty() ? "" : "  ") + score.label + " " + format_percent(score.value);
  }
  return text;
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

void tell_odd_images(const data::Split& data, comm::ProcessGroup& group) {
  const auto* query = data.retrieval ? data.retrieval->query.images.get() : nullptr;
  const auto* gallery = data.retrieval ? data.retrieval->gallery.images.get() : nullptr;
  if (const auto line = job::odd_images({data.train.get(), data.test.get(), query, gallery}, group)) log::warn(*line);
}

}  // namespace tandem::cli
