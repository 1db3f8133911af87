#include "tandem/train/weights_file.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/storage/file_io.h"
#include "tandem/train/checkpoint_reader.h"
#include "tandem/train/starting_weights.h"

namespace tandem::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWanted = ", wanted a safetensors file, its index, or a run's folder";

bool is_pickle(const fs::path& path) {
  constexpr std::array<std::string_view, 5> kEndings = {".pt", ".pth", ".bin", ".ckpt", ".pkl"};
  return std::ranges::find(kEndings, path.extension().string()) != kEndings.end();
}

/// What is wrong with the headers of a checkpoint's files.
std::optional<std::string> headers_fault(const CheckpointStore& store, int64_t step) {
  try {
    CheckpointReader(store, step);
    return std::nullopt;
  } catch (const std::exception& error) {
    return fault_words(error);
  }
}

fs::path newest_checkpoint(const fs::path& folder) {
  const auto place = locate_checkpoints(folder);
  const CheckpointStore store(place.folder);
  std::vector<std::string> notes;
  const auto found = store.find_newest({}, notes, place.newest, [&](const CheckpointStore::Found& candidate) {
    return headers_fault(store, candidate.step);
  });
  for (const auto& note : notes) log::warn(note);
  if (found) return store.path(found->step) / storage::kIndexName;
  throw DataError("weights is " + quote(folder.string()) + ", which holds no weights and no whole checkpoint" +
                  kWanted);
}

/// Rank r's file of a checkpoint holds r's parts.
int rank_of(const std::string& file) {
  constexpr std::string_view kBefore = "rank_";
  int rank = 0;
  if (!file.starts_with(kBefore)) return 0;
  std::from_chars(file.data() + kBefore.size(), file.data() + file.size(), rank);
  return file == storage::rank_file_name(rank) ? rank : 0;
}

void check_index(const std::map<std::string, std::string>& file_of_tensor,
                 const std::vector<StoredTensors::File>& files, const fs::path& index) {
  for (const auto& [tensor, name] : file_of_tensor) {
    const auto file = std::ranges::find(files, name, &StoredTensors::File::name);
    if (file->content.contains(tensor)) continue;
    throw DataError(quote(index.string()) + ": tensor " + quote(tensor) + " is missing in " + quote(name) +
                        ", where the index has it",
                    "the files belong to different copies, use another copy");
  }
}

}  // namespace

fs::path locate_weights(const fs::path& path) {
  const auto shown = "weights is " + quote(path.string());
  if (names_best(path)) return newest_checkpoint(path);
  if (!storage::is_there(path)) throw DataError(shown + ", which does not exist" + kWanted);
  if (std::error_code ignored; fs::is_directory(path, ignored)) {
    for (const auto* name : {storage::kIndexName, "model.safetensors"}) {
      if (storage::is_there(path / name)) return path / name;
    }
    return newest_checkpoint(path);
  }
  if (!is_pickle(path)) return path;
  throw DataError(shown + ", which is a pickle" + kWanted,
                  "convert it in Python: safetensors.torch.save_file(state_dict, FILE)");
}

StoredTensors open_weights(const fs::path& file) {
  std::vector<StoredTensors::File> files;
  if (file.extension() != ".json") {
    files.push_back({file.filename().string(), 0, storage::SafetensorsFile(file)});
    return StoredTensors(std::move(files));
  }
  const auto index = storage::parse_shard_index(storage::read_text_file(file, storage::kMaxIndexBytes), file.string());
  for (const auto& [tensor, name] : index) {
    if (std::ranges::find(files, name, &StoredTensors::File::name) != files.end()) continue;
    files.push_back({name, rank_of(name), storage::SafetensorsFile(file.parent_path() / name)});
  }
  check_index(index, files, file);
  return StoredTensors(std::move(files));
}

void load_weights(const fs::path& path, const std::vector<Parameter>& weights) {
  const auto file = locate_weights(path);
  const auto files = open_weights(file);
  fill_weights(files, match_weights(files, file.string(), weights, {}), weights);
}

}  // namespace tandem::train
