#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/job/job.h"
#include "tandem/train/model_card.h"
#include "tandem/train/trainer.h"

namespace tandem::job {

/// Makes the cards of a job's checkpoints. A card says the model's name, the shape of its images, what is done to a
/// picture before the model sees it, its classes, the scores of the last test and the job's settings, without `out` and
/// `resume`:
///
///   {"format": "tandem.model", "version": 1, "step": 300, "model": "resnet18",
///    "input": {"channels": 3, "height": 64, "width": 64},
///    "preprocessing": {"height": 64, "width": 64, "orientation": "exif", "resize": "stretch", "filter": "bilinear",
///                      "antialias": true, "reducing_gap": 3, "colours": "rgb", "inverted": false, "mean": [0.5],
///                      "std": [0.5]},
///    "head": {"normalise_features": true, "normalise_weight": true, "scale": 24.0},
///    "classes": {"count": 2, "names": ["cat", "dog"]}, "training_images": "0123...",
///    "metrics": {"step": 300, "top1": 0.953, ...}, "settings": {"model": "resnet18", "train.lr": "0.1", ...}}
///
/// The entries of "preprocessing" are the fields of data::ImageForm and data::Normalization; "head" says in short what
/// the settings do: scores are scale * features . weights, each divided by its length if it is normalised. Classes
/// whose names are their numbers, "0", "1" and so on, have no "names". Names of more than 1 MB are the tensor
/// `train::kClassNames` instead, of the same JSON. Bytes of a name that are not UTF-8 are replaced. "training_images"
/// is data::image_fingerprint() of images from a folder; other data have none. `job` and `dataset`, the training set,
/// must outlive the result. Memory, once it has been called: the names' JSON.
std::function<train::ModelCard(int64_t step, const train::Outcome& so_far)> card_writer(const Job& job,
                                                                                        const data::Dataset& dataset);

/// What a card says.
struct CardFacts {
  int64_t step = 0;
  DataShape shape;
  data::Preprocessing preprocessing;
  std::optional<std::vector<std::string>> names;  // of the classes; nullopt: see has_names_tensor
  bool has_names_tensor = false;                  // the names are train::kClassNames; else they are numbers
  std::string training_images;                    // "": not known
  settings::Settings settings;                    // of this version's schema
};

/// Reads a card. `file`: for error texts. Throws DataError if the text is no such card, SettingsError if this version
/// does not have a setting or its value.
CardFacts read_card(std::string_view text, const std::string& file);

/// The inverse of the names in a card or in train::kClassNames. Throws DataError, also if the names are not as many as
/// the card's classes.
std::vector<std::string> read_class_names(std::string_view json, const CardFacts& facts, const std::string& file);

}  // namespace tandem::job
