#include "tandem/job/starting_weights.h"

#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/joint_work.h"
#include "tandem/job/model_card.h"
#include "tandem/job/parts.h"
#include "tandem/job/sections/naming.h"
#include "tandem/models/positions.h"
#include "tandem/storage/file_io.h"
#include "tandem/train/starting_weights.h"
#include "tandem/train/stored_tensors.h"
#include "tandem/train/weights_file.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;

/// torchvision's models have no embedding, other data have other classes, and other images other positions.
train::WeightRoles roles_of(const Job& job) {
  train::WeightRoles roles = {.may_miss = {"head.", "embedding.", "embedding_bn.", "auxiliary_head."},
                              .may_differ = {"head.", kAuxiliaryWeight}};
  if (models::has_patches(job.model.name)) {
    const auto image = job.data.source->image_shape(job);
    const int64_t rows = image[1] / job.model.patch, columns = image[2] / job.model.patch;
    roles.resampled.push_back({models::kPositions, models::can_be_resampled, [=](const Tensor& stored) {
                                 return models::resampled_positions(stored, rows, columns);
                               }});
  }
  return roles;
}

/// What the weights say of themselves: beside a checkpoint's files, or in the file. A card that this version cannot
/// read counts as none.
std::optional<CardFacts> card_beside(const fs::path& file) {
  try {
    if (file.extension() == ".json") {
      const auto card = file.parent_path() / storage::kCardName;
      if (!storage::is_there(card)) return std::nullopt;
      return read_card(storage::read_text_file(card, storage::kMaxIndexBytes), card.string());
    }
    const storage::SafetensorsFile weights(file);
    const auto card = weights.metadata().find(train::kCardKey);
    if (card == weights.metadata().end()) return std::nullopt;
    return read_card(card->second, file.string());
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Weights know pictures as they were prepared for them.
void compare_pictures(const Job& job, const fs::path& file) {
  const auto card = card_beside(file);
  if (!card) return;
  std::string theirs, ours;
  for (const std::string key : {"data.orientation", "data.resize", "data.mean", "data.std"}) {
    const auto then = card->settings.get_string(key), now = job.settings.get_string(key);
    if (then == now) continue;
    theirs += (theirs.empty() ? "" : " ") + key + "=" + then;
    ours += (ours.empty() ? "" : " ") + key + "=" + now;
  }
  if (theirs.empty()) return;
  log::warn("model.weights were trained on pictures with " + theirs + ", this run has " + ours);
}

void tell(const train::StoredTensors& files, const train::WeightMatch& match, const std::string& file,
          const std::vector<train::Parameter>& weights) {
  const auto read = match.stored.size() - match.other_sizes.size();
  log::info("weights  " + format_count(static_cast<int64_t>(read)) + " tensors of " + file);
  for (const auto& line : lines_of(match, files, weights)) log::info("weights  " + line);
}

}  // namespace

void check_weights(const Job& job) {
  if (job.model.weights.empty()) return;
  naming_settings({"model"}, [&] { train::open_weights(train::locate_weights(job.model.weights)); });
}

void start_from_weights(const Job& job, const train::Task& task, comm::ProcessGroup& group) {
  if (job.model.weights.empty()) return;
  std::string file;
  comm::on_leader(
      group, [&] { naming_settings({"model"}, [&] { file = train::locate_weights(job.model.weights).string(); }); });
  file = comm::broadcast_text(file, 0, group);
  const auto fill = [&] {
    const auto weights = task.weights();
    const auto files = train::open_weights(file);
    const auto match = train::match_weights(files, file, weights, roles_of(job), job.model.weights_prefix);
    train::fill_weights(files, match, weights);
    if (group.rank() != 0) return;
    tell(files, match, file, weights);
    compare_pictures(job, file);
  };
  comm::jointly(group, [&] { naming_settings({"model"}, fill); });
}

}  // namespace tandem::job
