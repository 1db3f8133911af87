#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cli/run/answers.h"
#include "tandem/cli/run/scores.h"
#include "tandem/cli/run/search_files.h"
#include "tandem/cli/run/step_timeline.h"
#include "tandem/comm/transport.h"
#include "tandem/job/form_memory.h"
#include "tandem/job/rank_facts.h"
#include "tandem/parallel/mesh.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

/// The results of a training run.
struct Trained {
  train::Outcome outcome;
  int64_t classes = 0;
  std::string parallel;                                 // the strategy's name
  std::string_view tests;                               // data::Split::tests
  parallel::MeshSizes mesh;                             // of the ranks
  comm::Transport transport = comm::Transport::memory;  // of CPU tensors between the ranks
  int replicas = 1;                                     // of a rank, that share its part of a batch
  double predicted_step_seconds = 0;                    // of a plan that was searched for; 0: it was not
  train::Facts facts;                                   // of the step, over all ranks
  std::vector<job::RankFacts> ranks;
  std::vector<job::FormMemory> forms;  // of the head, other than the run's
  FeatureScores features;
  std::optional<TestAnswers> answers;  // of the last test, on rank 0
  std::optional<Found> found;          // of a search, on rank 0
  StepTimeline timeline;               // of a pipeline, on rank 0
  std::string weights_hash;
  std::filesystem::path folder;
};

/// Images per second of training only; 0 if nothing was trained.
double images_per_second(const train::Outcome& outcome);

/// The results as JSON. If the run had nothing left to train, loss and rate are null.
nlohmann::json trained_json(const Trained& trained);

/// The results as text for a terminal. `report`: path of the report; empty: there is none.
std::string trained_text(const Trained& trained, const std::filesystem::path& report);

}  // namespace tandem::cli
