#include "tests/train/placed_model.h"

#include <ATen/ATen.h>

#include <map>

#include "tandem/comm/split.h"

namespace tandem::train {
namespace {

using parallel::Axis;
using parallel::Mesh;
using parallel::MeshSizes;
using Cuts = std::vector<Mesh::Cut>;

struct Whole {
  std::vector<int64_t> sizes;
  double first;
};

const std::map<std::string, Whole> kWholes = {{"column", {{5, 7}, 100}},
                                              {"first", {{2, 3}, 200}},
                                              {"flat", {{3, 5}, 300}},
                                              {"grid", {{11, 6, 3}, 400}},
                                              {"last", {{}, 700}},
                                              {"nested", {{13, 2}, 800}},
                                              {"norm", {{4}, 900}},
                                              {"optimizer.exp_avg.last", {{}, 1000}},
                                              {"optimizer.exp_avg.norm", {{4}, 1100}}};

Parameter part(const std::string& name, const Placement& placement) {
  auto tensor = whole_of(name);
  for (const auto& split : placement.splits) tensor = tensor.narrow(split.dim, split.first, split.count);
  return Parameter::placed(name, tensor.clone(), placement);
}

Parameter placed(const Mesh& mesh, const std::string& name, const Cuts& cuts,
                 const std::optional<Mesh::Only>& only = {}) {
  return part(name, mesh.place(kWholes.at(name).sizes, cuts, only));
}

/// This rank's range of the flattened tensor, box by box. Each box is held by all ranks with the same shard coordinate.
void add_flat(const Mesh& mesh, std::vector<Parameter>& model) {
  const auto divided = mesh.place({1}, {{.dim = 0, .axis = Axis::shard, .counts = {}}});
  const auto [begin, end] = comm::split_range(15, mesh.size(Axis::shard), mesh.coordinate(Axis::shard));
  for (const auto& box : boxes_of_range({3, 5}, begin, end - begin)) {
    const Placement placement = {.splits = {{0, box.first[0], box.count[0], 3}, {1, box.first[1], box.count[1], 5}},
                                 .split_along = divided.split_along,
                                 .behind = divided.behind};
    model.push_back(part("flat", placement));
  }
}

}  // namespace

std::vector<Parameter> placed_model(const Mesh& mesh) {
  std::vector<Parameter> model = {
      placed(mesh, "norm", {}),
      placed(mesh, "optimizer.exp_avg.norm", {{.dim = 0, .axis = Axis::data}, {.dim = 0, .axis = Axis::shard}}),
      placed(mesh, "column", {{.dim = 1, .axis = Axis::tensor}}),
      placed(mesh, "grid", {{.dim = 0, .axis = Axis::shard}, {.dim = 1, .axis = Axis::tensor}}),
      placed(mesh, "nested", {{.dim = 0, .axis = Axis::tensor}, {.dim = 0, .axis = Axis::shard}})};
  if (mesh.size(Axis::shard) > 1) add_flat(mesh, model);
  if (mesh.size(Axis::shard) == 1) model.push_back(placed(mesh, "flat", {}));
  const int stage = mesh.coordinate(Axis::pipeline), last = mesh.size(Axis::pipeline) - 1;
  if (stage == 0) model.push_back(placed(mesh, "first", {}, Mesh::Only{Axis::pipeline, {0}}));
  if (stage != last) return model;
  model.push_back(placed(mesh, "last", {}, Mesh::Only{Axis::pipeline, {last}}));
  model.push_back(model.back().whole_beside("optimizer.exp_avg.last", whole_of("optimizer.exp_avg.last")));
  return model;
}

std::vector<std::string> names_of_placed_model() {
  std::vector<std::string> names;
  for (const auto& [name, whole] : kWholes) names.push_back(name);
  return names;
}

Tensor whole_of(const std::string& name) {
  const auto& [sizes, first] = kWholes.at(name);
  return at::arange(c10::multiply_integers(sizes), at::kDouble).reshape(sizes) + first + 1.0 / 3;
}

std::vector<MeshSizes> meshes() {
  return {{},
          {.data = 2},
          {.data = 5},
          {.shard = 3},
          {.tensor = 4},
          {.data = 2, .tensor = 2},
          {.shard = 2, .tensor = 2},
          {.tensor = 2, .pipeline = 2},
          {.data = 1, .shard = 5},
          {.data = 2, .shard = 2, .pipeline = 2}};
}

int ranks_of(const MeshSizes& sizes) { return static_cast<int>(sizes.ranks()); }

std::string name_of(const MeshSizes& sizes) {
  return "data " + std::to_string(sizes.data) + " shard " + std::to_string(sizes.shard) + " tensor " +
         std::to_string(sizes.tensor) + " pipeline " + std::to_string(sizes.pipeline);
}

std::vector<Parameter> zeros_like(const std::vector<Parameter>& model) {
  std::vector<Parameter> zeros;
  for (const auto& parameter : model)
    zeros.push_back(parameter.beside(parameter.name, at::zeros_like(parameter.tensor)));
  return zeros;
}

}  // namespace tandem::train
