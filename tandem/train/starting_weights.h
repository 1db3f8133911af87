#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tandem/train/parameter.h"
#include "tandem/train/stored_tensors.h"

namespace tandem::train {

/// A weight that can be made of a file's tensor of other sizes.
struct Resampled {
  std::string name;
  std::function<bool(at::IntArrayRef stored, at::IntArrayRef wanted)> takes;  // whether tensors of such sizes serve
  std::function<Tensor(const Tensor& stored)> resample;                       // to the weight's sizes
};

/// Which of a model's weights may differ from those of a file, by the beginnings of their names.
struct WeightRoles {
  std::vector<std::string> may_miss;    // in the file: they keep their values
  std::vector<std::string> may_differ;  // in their sizes: then they keep their values too
  std::vector<Resampled> resampled = {};
};

/// How the tensors of a file fill the weights of a model. All lists are in alphabetical order.
struct WeightMatch {
  std::string file;                           // as error texts name it
  std::string prefix;                         // before the names of all weights there
  std::map<std::string, std::string> stored;  // weight -> tensor of the file
  std::vector<std::string> missing;           // weights that the file does not have
  std::vector<std::string> other_sizes;       // weights whose sizes are others there
  std::vector<Resampled> resampled;           // weights that are made of tensors of other sizes
  std::vector<std::string> unused;            // tensors of the file that are no weights of the model
};

/// Matches by name. Other programs put a model under a name of its own, such as "module.backbone.": the prefix that
/// begins with `prefix`, and behind which the file has all weights that may not be missing, is found, and what is not
/// behind it is left out. Without a prefix, what a checkpoint holds besides a model is not listed. A missing
/// num_batches_tracked is not listed, and stays. Throws SettingsError, which begins with "weights is <file>": a weight
/// is missing or has other sizes and may not; all weights are behind several prefixes; or a weight that is no counter
/// holds whole numbers.
WeightMatch match_weights(const StoredTensors& files, const std::string& file, const std::vector<Parameter>& weights,
                          const WeightRoles& roles, const std::string& prefix = "");

/// Fills the parts that this rank holds, converted to their types. Memory: one part in the file's type at a time.
/// Throws as StoredTensors::read(), and DataError that names the first element which is infinite, NaN, too large for
/// its weight, a counter that is negative or no whole number, or a negative running_var.
void fill_weights(const StoredTensors& files, const WeightMatch& match, const std::vector<Parameter>& weights);

/// What a match leaves as it was or leaves out, a line each; for people.
std::vector<std::string> lines_of(const WeightMatch& match, const StoredTensors& files,
                                  const std::vector<Parameter>& weights);

}  // namespace tandem::train
