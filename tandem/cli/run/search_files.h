#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cli/run/folder.h"
#include "tandem/search/search_step.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

/// What a search has found.
struct Found {
  std::string genotype;     // that was asked for: of the last step, or of the best test
  std::string alphas_hash;  // of the last step
};

/// Writes into a run's folder what a search finds, test by test: alphas.jsonl, a line a test with the weights of all
/// operations and the genotype that they stand for; genotype.txt; its cells as
/// normal.svg and reduce.svg; search.html, which plays the tests. Those of tests after the step from which a run
/// goes on are dropped.
class SearchFiles : public train::Observer {
 public:
  /// Calls go on to `inner`. Everything must outlive this object.
  /// `takes_best`: genotype.txt is of the best test so far, not of the last.
  SearchFiles(const std::filesystem::path& folder, const search::SearchStep& step, bool takes_best, int64_t first_step,
              train::Observer& inner, FolderLock& lock);

  void on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) override;
  void on_scores(int64_t step, const train::Scores& scores) override;
  void on_evaluation(int64_t done, int64_t total) override;
  void on_checkpoint(int64_t step, const std::filesystem::path& path) override;
  void on_best(const train::BestTest& best, const std::filesystem::path& path) override;
  void on_skipped_step(int64_t step, const std::string& fault) override;

 private:
  void write();

  std::filesystem::path folder_;
  const search::SearchStep& step_;
  bool takes_best_;
  train::Observer& inner_;
  FolderLock& lock_;
  std::string lines_;
};

}  // namespace tandem::cli
