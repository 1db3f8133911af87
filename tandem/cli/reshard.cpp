#include "tandem/train/reshard.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/cli/command.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/folder.h"
#include "tandem/comm/process_group.h"
#include "tandem/comm/split.h"
#include "tandem/job/job.h"
#include "tandem/job/ranks.h"
#include "tandem/settings/settings.h"
#include "tandem/settings/value.h"
#include "tandem/storage/named_file.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/checkpoint_reader.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

const std::vector<settings::Setting>& reshard_settings() {
  static const std::vector<settings::Setting> settings = {
      {"ranks",
       int64_t{1},
       "number of ranks of the new checkpoint; if shares are given, one rank per share",
       {1, 1024}},
      {"shares", std::vector<double>{}, "relative size of each rank's part; empty: equal parts", {0}},
      {"out", std::string(), "folder of the new checkpoint"},
      {"merge", std::string(), "new .safetensors file for all weights, merged, without the optimizer state"},
  };
  return settings;
}

struct ReshardRequest {
  fs::path source;
  int ranks = 1;
  std::vector<double> shares;
  fs::path out, merged;
};

/// Whether the result can be written: reading a large checkpoint takes a while.
void check_place(const ReshardRequest& request) {
  if (!request.merged.empty()) {
    storage::check_named_file("merge file", request.merged);
    if (storage::is_there(request.merged)) {
      throw SettingsError("merge is '" + request.merged.string() + "', which exists, wanted a new file");
    }
  }
  if (!request.out.empty()) check_run_folder(request.out);
}

ReshardRequest read_reshard_request(const Arguments& arguments) {
  if (arguments.words.empty() || arguments.words[0].find('=') != std::string::npos) {
    throw UsageError("reshard: the checkpoint is missing, wanted 'tandem reshard RUN [key=value...]'");
  }
  settings::Settings settings{settings::Schema(reshard_settings())};
  settings.apply(std::span(arguments.words).subspan(1));
  ReshardRequest request;
  request.source = arguments.words[0];
  request.shares = settings.get_numbers("shares");
  request.ranks = static_cast<int>(settings.get_int("ranks"));
  if (!request.shares.empty() && settings.given("ranks") &&
      request.shares.size() != static_cast<size_t>(request.ranks)) {
    throw SettingsError("shares has " + std::to_string(request.shares.size()) + " numbers with ranks " +
                            std::to_string(request.ranks) + ", wanted one a rank",
                        "leave ranks out");
  }
  const double sum = std::accumulate(request.shares.begin(), request.shares.end(), 0.0);
  if (!request.shares.empty() && (!std::isfinite(sum) || sum <= 0)) {
    throw SettingsError("shares are " + settings::format_value(request.shares) +
                        ", wanted numbers that are not all 0 and have a sum");
  }
  if (request.shares.empty()) request.shares.assign(request.ranks, 1.0);
  request.ranks = static_cast<int>(request.shares.size());
  request.out = settings.get_string("out");
  request.merged = settings.get_string("merge");
  if (request.out.empty() && request.merged.empty()) {
    throw SettingsError("out and merge are empty, wanted a place for the result",
                        "add out=FOLDER for a checkpoint, or merge=FILE for a file of all weights");
  }
  check_place(request);
  return request;
}

/// The checkpoint that the user names, or a run's newest complete one.
std::pair<train::CheckpointStore, int64_t> find_checkpoint(const ReshardRequest& request) {
  const auto place = train::locate_checkpoints(request.source);
  train::CheckpointStore store(place.folder);
  if (place.newest) {
    if (const auto fault = store.verify(*place.newest)) {
      throw DataError("checkpoint '" + request.source.string() + "' " + *fault,
                      "name another one, or the run's folder");
    }
    return {std::move(store), *place.newest};
  }
  const auto alone = comm::make_single_group();
  const auto found = train::find_checkpoint(
      store, {}, {}, [](const train::CheckpointReader& checkpoint) { checkpoint.verify(); }, *alone);
  if (!found) throw DataError("'" + request.source.string() + "' holds no whole checkpoint");
  return {std::move(store), found->step};
}

/// The settings of the run, for the new checkpoint's folder, so that train and eval find them; "" if there are none.
std::string settings_for(const fs::path& checkpoints, const ReshardRequest& request) {
  const auto saved = checkpoints.parent_path() / "settings.toml";
  if (!storage::is_there(saved)) return "";
  settings::Settings run(job::schema());
  load_settings(run, saved);
  job::set_ranks(run, request.ranks);
  run.set("out", request.out.string());
  return run.to_toml();
}

void write_checkpoint(const train::CheckpointReader& reader, const fs::path& checkpoints,
                      const ReshardRequest& request) {
  train::CheckpointStore store(request.out / "checkpoints");
  if (!store.list().empty()) {
    throw SettingsError("out is '" + request.out.string() + "', which holds checkpoints, wanted a new folder");
  }
  const auto run_settings = settings_for(checkpoints, request);
  const auto split = [&](int64_t rows) { return comm::split_by_weight(rows, request.shares); };
  train::reshard(reader, store, request.ranks, train::along_same_dim(request.ranks, split));
  if (!run_settings.empty()) write_run_file(request.out / "settings.toml", run_settings);
}

}  // namespace

settings::Schema reshard_schema() { return reshard_settings(); }

int run_reshard(const Arguments& arguments) {
  if (!job::prints_for_the_job()) return 0;  // one process of a job does it
  const auto request = read_reshard_request(arguments);
  const auto [store, step] = find_checkpoint(request);
  const train::CheckpointReader reader(store, step);
  const auto source = store.path(step);
  std::string text = "read     " + source.string() + " of " + std::to_string(reader.manifest().world) +
                     (reader.manifest().world == 1 ? " rank\n" : " ranks\n");
  nlohmann::json result = {{"source", source.string()},
                           {"source_ranks", reader.manifest().world},
                           {"step", step},
                           {"ranks", request.ranks},
                           {"checkpoint", nullptr},
                           {"merged", nullptr},
                           {"rows", nlohmann::json::object()}};
  for (const auto& name : reader.names()) {
    const auto& tensor = reader.tensor(name);
    if (!tensor.split_dims.contains(0)) continue;
    result["rows"][name] = comm::split_by_weight(tensor.sizes[0], request.shares);
  }
  if (!request.out.empty()) {
    write_checkpoint(reader, source.parent_path(), request);
    const auto written = train::CheckpointStore(request.out / "checkpoints").path(step);
    result["checkpoint"] = written.string();
    text += "written  " + written.string() + " for " + std::to_string(request.ranks) +
            (request.ranks == 1 ? " rank\n" : " ranks\n");
  }
  if (!request.merged.empty()) {
    storage::write_named_file("merge file", request.merged,
                              [&](const fs::path& unfinished) { train::merge_weights(reader, unfinished); });
    result["merged"] = request.merged.string();
    text += "merged   " + request.merged.string() + ", " +
            format_bytes(static_cast<int64_t>(storage::InputFile(request.merged).size())) + "\n";
  }
  write_result(arguments, text, result);
  return 0;
}

}  // namespace tandem::cli
