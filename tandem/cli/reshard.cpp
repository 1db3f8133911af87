#include "tandem/train/reshard.h"

#include <nlohmann/json.hpp>

#include "tandem/base/bytes.h"
#include "tandem/base/error.h"
#include "tandem/cli/command.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run_folder.h"
#include "tandem/cli/settings.h"
#include "tandem/comm/split.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

const std::vector<Setting>& reshard_settings() {
  static const std::vector<Setting> settings = {
      {"ranks", int64_t{1}, "ranks that the new checkpoint is for", {1, 1024}},
      {"shares", std::vector<double>{}, "how much each rank gets, in proportion; empty: all the same", {0}},
      {"out", std::string(), "folder of the new checkpoint"},
      {"merge", std::string(), "file for all weights, each whole, without the optimizer's state: x.safetensors"},
  };
  return settings;
}

struct Job {
  fs::path source;
  int ranks = 1;
  std::vector<double> shares;
  fs::path out, merged;
};

Job read_job(const Arguments& arguments) {
  if (arguments.words.empty() || arguments.words[0].find('=') != std::string::npos) {
    throw UsageError("reshard: the checkpoint is missing, wanted 'tandem reshard RUN [key=value...]'");
  }
  Settings settings{Schema(reshard_settings())};
  settings.apply(std::span(arguments.words).subspan(1));
  Job job;
  job.source = arguments.words[0];
  job.shares = settings.get_numbers("shares");
  job.ranks = static_cast<int>(settings.get_int("ranks"));
  if (!job.shares.empty() && settings.given("ranks") && job.shares.size() != static_cast<size_t>(job.ranks)) {
    throw SettingsError("shares has " + std::to_string(job.shares.size()) + " numbers with ranks " +
                            std::to_string(job.ranks) + ", wanted one a rank",
                        "leave ranks out");
  }
  if (job.shares.empty()) job.shares.assign(job.ranks, 1.0);
  job.ranks = static_cast<int>(job.shares.size());
  job.out = settings.get_string("out");
  job.merged = settings.get_string("merge");
  if (job.out.empty() && job.merged.empty()) {
    throw SettingsError("out and merge are empty, wanted a place for the result",
                        "add out=FOLDER for a checkpoint, or merge=FILE for a file of all weights");
  }
  return job;
}

/// The newest whole one.
std::pair<train::CheckpointStore, int64_t> find_checkpoint(const Job& job) {
  const auto place = train::locate_checkpoints(job.source);
  train::CheckpointStore store(place.folder);
  std::vector<std::string> notes;
  const auto found = store.find_newest({}, notes, place.newest);
  if (found) return {std::move(store), found->step};
  throw DataError("'" + job.source.string() + "' holds no whole checkpoint" + (notes.empty() ? "" : ": " + notes[0]));
}

/// So that train and eval find what the run was.
void copy_settings(const fs::path& checkpoints, const Job& job) {
  const auto saved = checkpoints.parent_path() / "settings.toml";
  if (!fs::exists(saved)) return;
  Settings run;
  run.load_file(saved);
  run.set("ranks", std::to_string(job.ranks));
  write_run_file(job.out / "settings.toml", run.to_toml());
}

void write_checkpoint(const train::CheckpointReader& reader, const fs::path& checkpoints, const Job& job) {
  train::CheckpointStore store(job.out / "checkpoints");
  if (!store.list().empty()) {
    throw SettingsError("out is '" + job.out.string() + "', which holds checkpoints, wanted a new folder");
  }
  train::reshard(reader, store, job.ranks, [&](int64_t rows) { return comm::split_by_weight(rows, job.shares); });
  copy_settings(checkpoints, job);
}

}  // namespace

int run_reshard(const Arguments& arguments) {
  check_result_file(arguments);
  const auto job = read_job(arguments);
  const auto [store, step] = find_checkpoint(job);
  const train::CheckpointReader reader(store, step);
  const auto source = store.path(step);
  std::string text = "read     " + source.string() + " of " + std::to_string(reader.manifest().world) + " ranks\n";
  nlohmann::json result = {{"source", source.string()},
                           {"source_ranks", reader.manifest().world},
                           {"step", step},
                           {"ranks", job.ranks},
                           {"checkpoint", nullptr},
                           {"merged", nullptr},
                           {"rows", nlohmann::json::object()}};
  for (const auto& name : reader.names()) {
    if (const auto rows = reader.split_rows(name)) result["rows"][name] = comm::split_by_weight(*rows, job.shares);
  }
  if (!job.out.empty()) {
    write_checkpoint(reader, source.parent_path(), job);
    const auto written = train::CheckpointStore(job.out / "checkpoints").path(step);
    result["checkpoint"] = written.string();
    text += "written  " + written.string() + " for " + std::to_string(job.ranks) + " ranks\n";
  }
  if (!job.merged.empty()) {
    train::merge_weights(reader, job.merged);
    result["merged"] = job.merged.string();
    text +=
        "merged   " + job.merged.string() + ", " + format_bytes(static_cast<int64_t>(fs::file_size(job.merged))) + "\n";
  }
  write_result(arguments, text, result);
  return 0;
}

}  // namespace tandem::cli
