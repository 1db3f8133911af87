#pragma once
#include <string>
#include <vector>

#include "tandem/parallel/mesh.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

/// Tensors of float64 with every kind of placement, on any mesh; no size is divided by all numbers of ranks.
///
///   norm                          [4]          every rank holds it
///   optimizer.exp_avg.norm        [4]          split over data and shard, although its weight is not
///   column                        [5, 7]       dim 1 over tensor, replicated over data and shard
///   grid                          [11, 6, 3]   dim 0 over shard, dim 1 over tensor
///   nested                        [13, 2]      dim 0 over tensor, each part over shard
///   flat                          [3, 5]       flattened, then split over shard: several boxes a rank
///   first, last                   [2, 3], []   on the first and on the last stage of the pipeline only
///   optimizer.exp_avg.last        []           beside it
std::vector<Parameter> placed_model(const parallel::Mesh& mesh);

/// All of a tensor of the model, under names in alphabetical order.
std::vector<std::string> names_of_placed_model();
Tensor whole_of(const std::string& name);

/// Meshes of 1 to 8 ranks.
std::vector<parallel::MeshSizes> meshes();
int ranks_of(const parallel::MeshSizes& sizes);
std::string name_of(const parallel::MeshSizes& sizes);

/// Zeros in place of the model's values, or the values; with the same placements.
std::vector<Parameter> zeros_like(const std::vector<Parameter>& model);

}  // namespace tandem::train
