#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/parallel/placement.h"
#include "tandem/storage/safetensors.h"

namespace tandem::train::detail {

/// The name, in a rank's file, of a part of a split tensor: `head.weight.rank_0003`; of the rank's second part of the
/// same tensor, `head.weight.rank_0003.1`.
std::string name_of_part(const std::string& name, int rank, int place = 0);

/// The inverse: the tensor's name, or nullopt if `stored` is no part's name in the file of `rank`.
std::optional<std::string> name_of_whole(const std::string& stored, int rank);

/// Notes in a file's metadata which part of a split tensor the tensor `stored` is:
///   tandem.rows.<stored> = first,count,total                    split along dim 0 only
///   tandem.part.<stored> = dim:first:count:total;dim:...        any other split
void put_splits(std::map<std::string, std::string>& metadata, const std::string& stored,
                const std::vector<parallel::Split>& splits);

/// The splits that a file's metadata notes for a tensor; none: the tensor is whole. Throws DataError if a note is
/// malformed or does not match the tensor.
std::vector<parallel::Split> splits_of(const storage::SafetensorsFile& file, const std::string& stored);

}  // namespace tandem::train::detail
