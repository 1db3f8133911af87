#pragma once
#include <map>
#include <string>
#include <vector>

#include "tandem/train/parameter.h"
#include "tandem/train/stored_tensors.h"

namespace tandem::train {

/// Which of a model's weights may differ from those of a file, by the beginnings of their names.
struct WeightRoles {
  std::vector<std::string> may_miss;    // in the file: they keep their values
  std::vector<std::string> may_differ;  // in their sizes: then they keep their values too
};

/// How the tensors of a file fill the weights of a model. All lists are in alphabetical order.
struct WeightMatch {
  std::map<std::string, std::string> stored;  // weight -> tensor of the file
  std::vector<std::string> missing;           // weights that the file does not have
  std::vector<std::string> other_sizes;       // weights whose sizes are others there
  std::vector<std::string> unused;            // tensors of the file that are no weights of the model
};

/// Matches by name. What wrappers put before every name of a file ("module.", "_orig_mod.", "model.") is left out, and
/// so is what a checkpoint holds besides a model. A missing num_batches_tracked is not listed, and stays. Throws
/// SettingsError, which begins with "weights is <file>": a weight is missing or has other sizes and may not, or one
/// holds numbers of another kind, such as integers.
WeightMatch match_weights(const StoredTensors& files, const std::string& file, const std::vector<Parameter>& weights,
                          const WeightRoles& roles);

/// Fills the parts that this rank holds, converted to their types. Memory: one part in the file's type at a time.
/// Throws as StoredTensors::read(), and NonFiniteError for an infinity or a NaN.
void fill_weights(const StoredTensors& files, const WeightMatch& match, const std::vector<Parameter>& weights);

/// What a match leaves as it was or leaves out, a line each; for people.
std::vector<std::string> lines_of(const WeightMatch& match, const StoredTensors& files,
                                  const std::vector<Parameter>& weights);

}  // namespace tandem::train
