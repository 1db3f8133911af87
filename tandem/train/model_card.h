#pragma once
#include <string>

#include "tandem/base/tensor.h"

namespace tandem::train {

/// What a checkpoint says of its model besides the weights, so that the model can be used without its training data.
/// Whoever makes the card decides what it says; a checkpoint keeps it, a resharded or merged one has the same.
struct ModelCard {
  std::string text;    // JSON, the file model.json; a merged file's metadata kCardKey. Empty: there is no card
  Tensor class_names;  // uint8, the tensor kClassNames: JSON, where the names are too long for `text`; may be undefined
};

inline constexpr const char *kCardKey = "tandem.model", *kClassNames = "tandem.class_names";

}  // namespace tandem::train
