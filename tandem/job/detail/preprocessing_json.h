#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/data/preprocessing.h"

namespace tandem::job::detail {

/// The object "preprocessing" of a model card: one entry a field of data::ImageForm and data::Normalization.
nlohmann::ordered_json preprocessing_json(const data::Preprocessing& preprocessing);

/// The inverse, for a model whose images have the shape `input`: channels, height, width. `file`: for error texts.
/// Throws DataError that names a missing or wrong entry.
data::Preprocessing read_preprocessing(const nlohmann::json& json, const std::array<int64_t, 3>& input,
                                       const std::string& file);

}  // namespace tandem::job::detail
