#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/comm/process_group.h"
#include "tandem/data/dataset.h"
#include "tandem/settings/settings.h"
#include "tandem/train/task.h"

namespace tandem::cli {

/// How well the task's features find identities that were not learned: {"map", "map_trapezoid", "minp", "cmc": [..],
/// "queries", "valid"}. Collective.
nlohmann::json retrieval_scores(const settings::Settings& settings, train::Task& task, const data::Retrieval& retrieval,
                                comm::ProcessGroup& group);

/// Each file of eval.pairs by LFW's protocol, the features of an image and of its mirror image added: [{"file",
/// "pairs", "accuracy", "accuracy_deviation", "val", "val_deviation", "far"}]. Collective.
nlohmann::json pair_scores(const settings::Settings& settings, train::Task& task, comm::ProcessGroup& group);

/// Opens the files of eval.pairs, so that a bad one is told before long work. Throws as data::verification_pairs(), and
/// DataError for pairs that cannot be scored.
void check_pairs(const settings::Settings& settings);

/// Lines for a terminal; none for null.
std::string retrieval_text(const nlohmann::json& retrieval);
std::string pairs_text(const nlohmann::json& pairs);

}  // namespace tandem::cli
