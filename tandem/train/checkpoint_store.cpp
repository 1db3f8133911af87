#include "tandem/train/checkpoint_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/storage/checksum.h"
#include "tandem/train/checkpoint_reader.h"

namespace tandem::train {
namespace {

namespace fs = std::filesystem;

const std::string kAside = "aside_";

constexpr uint64_t kMaxManifestBytes = 64 << 20;

std::string step_name(int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
  return name;
}

std::optional<int64_t> step_of(const std::string& name) {
  int64_t step = -1;
  const auto* end = name.data() + name.size();
  if (!name.starts_with("step_") || std::from_chars(name.data() + 5, end, step).ptr != end) return {};
  if (step < 0 || step_name(step) != name) return {};
  return step;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  return names;
}

std::string counted(const std::string& name, uint64_t found, uint64_t wanted) {
  return name + " has " + std::to_string(found) + " bytes, wanted " + std::to_string(wanted);
}

/// What is wrong with a checkpoint's files, judged by their sizes alone.
std::optional<std::string> size_fault(const fs::path& folder, const storage::Manifest& manifest) {
  for (const auto& file : manifest.files) {
    std::error_code error;
    const auto found = fs::file_size(folder / file.name, error);
    if (error) return "is cut short: " + file.name + " is missing, wanted " + std::to_string(file.bytes) + " bytes";
    if (found < file.bytes) return "is cut short: " + counted(file.name, found, file.bytes);
    if (found > file.bytes) return "is damaged: " + counted(file.name, found, file.bytes);
  }
  return {};
}

/// Reads the index or the card. Throws DataError if the text is not the one that the manifest describes.
std::string read_described(const fs::path& folder, const storage::CheckpointFile& file) {
  auto text = storage::read_text_file(folder / file.name, storage::kMaxIndexBytes);
  const auto found = storage::checksum_of(text);
  if (found == file.checksum) return text;
  throw DataError(file.name + " has checksum " + found + ", wanted " + file.checksum);
}

std::optional<std::string> job_fault(const storage::Identity& found, const storage::Identity& wanted) {
  for (const auto& [key, value] : wanted) {
    const auto same_key = [&key = key](const auto& pair) { return pair.first == key; };
    const auto at = std::find_if(found.begin(), found.end(), same_key);
    if (at == found.end()) return "is of another job: " + key + " is missing, wanted " + value;
    if (at->second != value) return "is of another job: " + key + " is " + at->second + ", wanted " + value;
  }
  return {};
}

std::optional<int64_t> best_step_of(const storage::Manifest& manifest) {
  const auto* value = storage::find_value(manifest.trainer, kBestStep);
  const auto* step = value != nullptr ? std::get_if<int64_t>(value) : nullptr;
  return step != nullptr ? std::optional(*step) : std::nullopt;
}

fs::path normal(const fs::path& path) {
  std::error_code error;
  const auto place = fs::absolute(path, error).lexically_normal();
  return place.has_filename() ? place : place.parent_path();  // a slash at the end
}

CheckpointPlace locate_best(const fs::path& place) {
  const CheckpointStore store(place.parent_path());
  const auto missing = "checkpoint " + quote(place.string()) + " is missing: ";
  const auto best = store.best();
  if (!best) throw DataError(missing + "no test was kept as the best", "train with checkpoint.best, or name a step");
  std::error_code error;
  if (fs::is_directory(store.path(*best), error)) return {place.parent_path(), best};
  throw DataError(missing + "the best test was after step " + std::to_string(*best) + ", whose checkpoint is not here",
                  "look for it in the run from which this one goes on, or name another step");
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path folder, int keep) : folder_(std::move(folder)), keep_(keep) {
  TORCH_CHECK_VALUE(keep >= 1, "checkpoints to keep is ", keep, ", wanted 1 or more");
}

fs::path CheckpointStore::path(int64_t step) const { return folder_ / step_name(step); }

fs::path CheckpointStore::temporary(int64_t step) const { return folder_ / (".tmp_" + step_name(step)); }

void CheckpointStore::begin(int64_t step) {
  TORCH_CHECK_VALUE(step >= 0, "a checkpoint's step is ", step, ", wanted 0 or more");
  if (guard_) guard_();
  std::error_code ignored;
  const bool had_gone = is_made_ && !fs::is_directory(folder_, ignored);
  storage::make_own_folder(folder_);
  is_made_ = true;
  if (had_gone) log::warn("folder " + quote(folder_.string()) + " had gone and was made anew; what was in it is lost");
  remove_leftovers(step);
  if (!fs::is_directory(fs::symlink_status(temporary(step), ignored))) storage::remove_tree(temporary(step));
  storage::make_own_folder(temporary(step));
}

void CheckpointStore::remove_leftovers(int64_t current) const {
  for (const auto& name : names_in(folder_)) {
    if (!name.starts_with(".tmp_step_") || name == temporary(current).filename()) continue;
    try {
      storage::remove_tree(folder_ / name);
    } catch (const IoError&) {  // another rank is removing it
    }
  }
}

void CheckpointStore::write_rank(int64_t step, int rank, const std::vector<storage::NamedTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  storage::refuse_link(temporary(step));
  storage::write_safetensors(temporary(step) / storage::rank_file_name(rank),
                             std::span<const storage::NamedTensor>(tensors), metadata);
}

void CheckpointStore::write_rank(int64_t step, int rank, const std::vector<storage::TensorSource>& sources,
                                 const std::map<std::string, std::string>& metadata) {
  storage::refuse_link(temporary(step));
  storage::write_safetensors(temporary(step) / storage::rank_file_name(rank),
                             std::span<const storage::TensorSource>(sources), metadata);
}

storage::Manifest CheckpointStore::complete(storage::Manifest manifest, const std::string& card) const {
  const auto folder = temporary(manifest.step);
  std::map<std::string, std::string> file_of_tensor;
  uint64_t total = 0;
  manifest.files.clear();
  for (int rank = 0; rank < manifest.world; ++rank) {
    const storage::SafetensorsFile shard(folder / storage::rank_file_name(rank));
    manifest.files.push_back({storage::rank_file_name(rank), shard.size(), shard.header_checksum()});
    total += shard.data_bytes();
    for (const auto& name : shard.names()) {
      const auto [at, is_new] = file_of_tensor.emplace(name, storage::rank_file_name(rank));
      if (is_new) continue;
      throw DataError("tensor " + quote(name) + " is in " + at->second + " and in " + storage::rank_file_name(rank) +
                      ", wanted it in one file");
    }
  }
  const auto add = [&](const char* name, const std::string& text) {
    storage::write_text_file(folder / name, text);
    manifest.files.push_back({name, text.size(), storage::checksum_of(text)});
  };
  add(storage::kIndexName, storage::format_shard_index(file_of_tensor, total));
  if (!card.empty()) add(storage::kCardName, card);
  return manifest;
}

void CheckpointStore::commit(storage::Manifest manifest, const std::string& card) {
  TORCH_CHECK_VALUE(manifest.world >= 1, "a checkpoint's world is ", manifest.world, ", wanted 1 or more");
  const auto folder = temporary(manifest.step);
  storage::refuse_link(folder_);
  storage::refuse_link(folder);
  manifest = complete(std::move(manifest), card);
  std::set<std::string> wanted = {storage::kManifestName};
  for (const auto& file : manifest.files) wanted.insert(file.name);
  for (const auto& name : names_in(folder)) {  // left by a stopped run with more ranks
    if (!wanted.contains(name)) storage::remove_tree(folder / name);
  }
  storage::write_text_file(folder / storage::kManifestName, storage::format_manifest(manifest));
  storage::sync_folder(folder);
  storage::rename_or_swap(folder, path(manifest.step));
  storage::sync_folder(folder_);
  try {
    remove_leftovers(-1);
    prune(manifest);
  } catch (const Error& error) {
    log::warn("old checkpoints stay: " + message_of(error));
  }
}

void CheckpointStore::abandon(int64_t step) noexcept {
  std::error_code ignored;
  if (!fs::is_symlink(folder_, ignored)) fs::remove_all(temporary(step), ignored);
}

std::string CheckpointStore::set_aside(int64_t step) const {
  if (guard_) guard_();
  for (const auto& name : names_in(folder_)) {
    if (name.starts_with(kAside)) storage::remove_tree(folder_ / name);
  }
  const auto name = kAside + step_name(step);
  storage::rename_over(path(step), folder_ / name);
  storage::sync_folder(folder_);
  return name;
}

void CheckpointStore::prune(const storage::Manifest& committed) const {
  int kept = 1;
  for (const auto step : list()) {
    if (step >= committed.step) continue;
    bool whole = false;
    try {
      const auto found = manifest(step);
      if (found.identity != committed.identity) continue;
      whole = !size_fault(path(step), found);
    } catch (const Error&) {  // damaged: does not count as complete
    }
    if (kept < keep_) {
      kept += whole ? 1 : 0;
      continue;
    }
    if (step == best_step_of(committed)) continue;
    // Rename it first: a folder that is half removed must not look like a checkpoint.
    auto away = temporary(step);
    away += ".pruned";
    storage::remove_tree(away);
    storage::rename_or_swap(path(step), away);
    storage::remove_tree(away);
  }
}

std::vector<int64_t> CheckpointStore::list() const {
  std::vector<int64_t> steps;
  for (const auto& name : names_in(folder_)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::optional<std::string> CheckpointStore::fault_of(int64_t step, const storage::Identity& job,
                                                     storage::Manifest& found) const {
  std::error_code error;
  if (!fs::is_directory(path(step), error)) return "is missing";
  if (!fs::exists(path(step) / storage::kManifestName, error)) return "is unfinished: manifest.json is missing";
  try {
    found = manifest(step);
    if (auto fault = job_fault(found.identity, job)) return fault;
    if (auto fault = size_fault(path(step), found)) return fault;
    read_described(path(step), found.index());  // the ranks' files are checked when they are read
    card(found);
    return {};
  } catch (const Error& fault) {
    return fault_words(fault);
  }
}

std::optional<std::string> CheckpointStore::reading_fault(const Found& candidate) const {
  try {
    CheckpointReader(*this, candidate.step).verify();
    return {};
  } catch (const Error& fault) {
    return fault_words(fault);
  }
}

std::optional<std::string> CheckpointStore::verify(int64_t step, const storage::Identity& job,
                                                   const Reading& read) const {
  Found found{step, {}};
  if (auto fault = fault_of(step, job, found.manifest)) return fault;
  return read ? read(found) : reading_fault(found);
}

std::optional<CheckpointStore::Found> CheckpointStore::find_newest(const storage::Identity& job,
                                                                   std::vector<std::string>& notes,
                                                                   std::optional<int64_t> newest,
                                                                   const Reading& read) const {
  auto steps = list();
  if (newest) {
    std::erase_if(steps, [&](int64_t step) { return step > *newest; });
    // The user named this checkpoint: report it if it is missing.
    if (steps.empty() || steps[0] != *newest) steps.insert(steps.begin(), *newest);
  }
  for (const auto step : steps) {
    Found found{step, {}};
    auto fault = fault_of(step, job, found.manifest);
    if (!fault) fault = read ? read(found) : reading_fault(found);
    if (!fault) return found;
    notes.push_back("checkpoint " + step_name(step) + " " + *fault);
  }
  return {};
}

std::optional<int64_t> CheckpointStore::newest(const storage::Identity& job) const {
  std::vector<std::string> ignored;
  const auto found = find_newest(job, ignored, {}, [](const Found&) { return std::optional<std::string>(); });
  return found ? std::optional(found->step) : std::nullopt;
}

std::optional<int64_t> CheckpointStore::best() const {
  for (const auto step : list()) {
    try {
      if (const auto best = best_step_of(manifest(step))) return best;
    } catch (const Error&) {  // damaged: an older one may tell
    }
  }
  return {};
}

bool names_best(const fs::path& path) {
  const auto place = normal(path);
  return place.filename() == kBestName && !storage::is_there(place) &&
         !CheckpointStore(place.parent_path()).list().empty();
}

std::string fault_words(const std::exception& error) {
  const auto text = message_of(error);
  if (dynamic_cast<const SettingsError*>(&error) != nullptr) return "is of another job: " + text;
  if (dynamic_cast<const NonFiniteError*>(&error) != nullptr) return "is not finite: " + text;
  if (dynamic_cast<const DataError*>(&error) != nullptr) return "is damaged: " + text;
  return "cannot be read: " + text;
}

storage::Manifest CheckpointStore::manifest(int64_t step) const {
  const auto file = path(step) / storage::kManifestName;
  auto found = storage::parse_manifest(storage::read_text_file(file, kMaxManifestBytes), file.string());
  if (found.step != step) {
    throw DataError(
        quote(file.string()) + ": step is " + std::to_string(found.step) + ", wanted " + std::to_string(step),
        "the folder was renamed, give it its own name");
  }
  return found;
}

std::string CheckpointStore::card(const storage::Manifest& manifest) const {
  return manifest.card() == nullptr ? "" : read_described(path(manifest.step), *manifest.card());
}

storage::SafetensorsFile CheckpointStore::open_rank(int64_t step, int rank) const {
  return storage::SafetensorsFile(path(step) / storage::rank_file_name(rank));
}

CheckpointPlace locate_checkpoints(const fs::path& path) {
  const auto place = normal(path);
  if (names_best(place)) return locate_best(place);
  std::error_code error;
  const auto step = step_of(place.filename().string());
  if (step && fs::is_directory(place, error)) return {place.parent_path(), step};
  const auto name = place.filename().string();
  if (name.starts_with(kAside) && fs::is_directory(place, error)) {
    throw DataError(
        "checkpoint " + quote(path.string()) + " was set aside: training went from it to infinities or NaNs",
        "rename it to " + name.substr(kAside.size()) + " to use it all the same");
  }
  if (fs::is_directory(place / "checkpoints", error)) return {place / "checkpoints", {}};
  if (fs::is_directory(place, error)) return {place, {}};
  throw DataError("checkpoints " + quote(path.string()) + " are missing, wanted a folder",
                  "name a run's folder, its checkpoints or one of them");
}

}  // namespace tandem::train
