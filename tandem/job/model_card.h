#pragma once
#include <functional>
#include <string_view>

#include "tandem/data/dataset.h"
#include "tandem/job/job.h"
#include "tandem/train/model_card.h"
#include "tandem/train/trainer.h"

namespace tandem::job {

/// Makes the cards of a job's checkpoints. A card says the model's name, the shape of its images, its classes, the
/// scores of the last test and the job's settings, without `out` and `resume`:
///
///   {"format": "tandem.model", "version": 1, "step": 300, "model": "resnet18",
///    "input": {"channels": 3, "height": 64, "width": 64},
///    "classes": {"count": 2, "names": ["cat", "dog"]},
///    "metrics": {"step": 300, "top1": 0.953, ...}, "settings": {"model": "resnet18", "train.lr": "0.1", ...}}
///
/// Classes whose names are their numbers, "0", "1" and so on, have no "names". Names of more than 1 MB are the tensor
/// `train::kClassNames` instead, of the same JSON. Bytes of a name that are not UTF-8 are replaced. `job` and
/// `dataset`, the training set, must outlive the result. Memory, once it has been called: the names' JSON.
std::function<train::ModelCard(int64_t step, const train::Outcome& so_far)> card_writer(const Job& job,
                                                                                        const data::Dataset& dataset);

/// The settings in a card, of this version's schema. Throws DataError if the text is no such card, SettingsError if
/// this version does not have a setting or its value. `file`: for error texts.
settings::Settings settings_of_card(std::string_view text, const std::string& file);

}  // namespace tandem::job
