#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/optimizer.h"
#include "tandem/train/reshard.h"
#include "tandem/train/weights_hash.h"
#include "tests/support/python.h"
#include "tests/support/text_of.h"
#include "tests/train/placed_model.h"

// Checkpoint, reshard, merge, hash and clipping of tensors with every kind of placement, each compared with the tensors
// of one device.
namespace tandem::train {
namespace {

using parallel::Axis;
using parallel::Mesh;
using parallel::MeshSizes;
using test::slurp;
using test::TemporaryFolder;
using test::text_of;

constexpr int64_t kStep = 7;

void on_mesh(const MeshSizes& sizes, const std::function<void(Mesh&)>& body) {
  comm::run_ranks(ranks_of(sizes), [&](comm::ProcessGroup& world) {
    Mesh mesh(sizes, world);
    body(mesh);
  });
}

void save_on(const MeshSizes& sizes, CheckpointStore& store) {
  on_mesh(sizes, [&](Mesh& mesh) {
    TrainingState state;
    state.tensors = placed_model(mesh);
    EXPECT_TRUE(save_checkpoint(store, kStep, state, mesh.world())) << name_of(sizes);
  });
}

void expect_loads_on(const MeshSizes& sizes, const CheckpointStore& store, const std::string& written) {
  on_mesh(sizes, [&](Mesh& mesh) {
    const auto wanted = placed_model(mesh);
    TrainingState state;
    state.tensors = zeros_like(wanted);
    EXPECT_TRUE(load_checkpoint(store, state, {}, mesh.world())) << written << " -> " << name_of(sizes);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(state.tensors[i].tensor.equal(wanted[i].tensor))
          << wanted[i].name << ", rank " << mesh.world().rank() << ": " << written << " -> " << name_of(sizes);
    }
  });
}

TEST(PlacedCheckpoint, EveryMeshReadsWhatEveryOtherWrote) {
  for (const auto& writers : meshes()) {
    const TemporaryFolder folder;
    CheckpointStore store(folder.path());
    save_on(writers, store);
    for (const auto& readers : meshes()) expect_loads_on(readers, store, name_of(writers));
  }
}

/// The tensors are in no file twice: together the files have the bytes of one device's.
TEST(PlacedCheckpoint, EachPartIsStoredOnce) {
  int64_t wanted = 0;
  for (const auto& name : names_of_placed_model()) wanted += static_cast<int64_t>(whole_of(name).nbytes());
  for (const auto& sizes : meshes()) {
    const TemporaryFolder folder;
    CheckpointStore store(folder.path());
    save_on(sizes, store);
    int64_t found = 0;
    for (int rank = 0; rank < ranks_of(sizes); ++rank) {
      found += static_cast<int64_t>(store.open_rank(kStep, rank).data_bytes());
    }
    EXPECT_EQ(found, wanted) << name_of(sizes);
    EXPECT_EQ(store.verify(kStep), std::nullopt);
    const CheckpointReader reader(store, kStep);
    EXPECT_EQ(reader.names(), names_of_placed_model());
    for (const auto& name : reader.names()) EXPECT_TRUE(reader.read(name).equal(whole_of(name))) << name;
  }
}

TEST(PlacedCheckpoint, AStageThatDamagesItsFileIsFoundByTheRankThatReadsIt) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  save_on({.pipeline = 2}, store);
  const auto path = store.path(kStep) / storage::rank_file_name(1);
  auto bytes = slurp(path);
  bytes.back() ^= 4;
  test::spill(path, bytes);
  testing::internal::CaptureStderr();
  on_mesh({.pipeline = 2}, [&](Mesh& mesh) {
    TrainingState state;
    state.tensors = zeros_like(placed_model(mesh));
    EXPECT_FALSE(load_checkpoint(store, state, {}, mesh.world()));
  });
  EXPECT_NE(testing::internal::GetCapturedStderr().find("is damaged: "), std::string::npos);
}

TEST(PlacedCheckpoint, PartsAlongAnotherDimTakeOneStoredPartOfMemory) {
  memory::install_meter();
  constexpr int64_t kRows = 64, kColumns = 3'000;  // 3 parts of 512,000 bytes
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  const auto state_of = [](const Mesh& mesh) {
    const auto placement = mesh.place({kRows, kColumns}, {{.dim = 1, .axis = Axis::tensor}});
    const auto columns = placement.splits.empty() ? kColumns : placement.splits[0].count;
    TrainingState state;
    state.tensors = {Parameter::placed("w", at::ones({kRows, columns}, at::kDouble), placement)};
    return state;
  };
  on_mesh({.tensor = 3}, [&](Mesh& mesh) { save_checkpoint(store, kStep, state_of(mesh), mesh.world()); });
  for (const auto& [tensor, extra] : std::map<int, int64_t>{{3, 0}, {1, 512'000}, {2, 512'000}}) {
    on_mesh({.tensor = tensor}, [&, extra = extra](Mesh& mesh) {
      const RankScope scope(mesh.world().rank());
      const auto state = state_of(mesh);
      memory::reset_peak(mesh.world().rank());
      const auto before = memory::account(mesh.world().rank()).live_bytes();
      EXPECT_TRUE(load_checkpoint(store, state, {}, mesh.world()));
      EXPECT_NEAR(memory::account(mesh.world().rank()).peak_bytes() - before, extra, 1024);
    });
  }
}

RowSplit evenly(int ranks) {
  return [ranks](int64_t rows) { return comm::split_sizes(rows, ranks); };
}

TEST(PlacedReshard, AnyNumberOfRanksAndBack) {
  for (const auto& sizes : meshes()) {
    const TemporaryFolder folder;
    CheckpointStore first(folder / "first"), second(folder / "second"), third(folder / "third");
    save_on(sizes, first);
    reshard(CheckpointReader(first, kStep), second, 3, along_same_dim(3, evenly(3)));
    reshard(CheckpointReader(second, kStep), third, 5, along_same_dim(5, evenly(5)));
    for (const auto* store : {&second, &third}) {
      EXPECT_EQ(store->verify(kStep), std::nullopt);
      const CheckpointReader reader(*store, kStep);
      for (const auto& name : names_of_placed_model()) EXPECT_TRUE(reader.read(name).equal(whole_of(name))) << name;
    }
    expect_loads_on(sizes, third, "resharded");
  }
}

/// To the placements of another mesh: the files are those that its ranks write, byte for byte.
TEST(PlacedReshard, ALayoutOfAMeshWritesWhatItsRanksWrite) {
  const MeshSizes wanted = {.shard = 2, .tensor = 2};
  std::vector<std::vector<Parameter>> models(ranks_of(wanted));
  on_mesh(wanted, [&](Mesh& mesh) { models[mesh.world().rank()] = placed_model(mesh); });
  const auto layout = [&](const std::string& name, const StoredTensor&, int rank) {
    std::vector<Placement> placements;
    for (const auto& parameter : models[rank]) {
      if (parameter.name == name) placements.push_back(parameter.placement);
    }
    return placements;
  };
  const TemporaryFolder folder;
  CheckpointStore written(folder / "written");
  save_on(wanted, written);
  for (const auto& sizes : meshes()) {
    const TemporaryFolder other;
    CheckpointStore from(other / "from"), to(other / "to");
    save_on(sizes, from);
    reshard(CheckpointReader(from, kStep), to, ranks_of(wanted), layout);
    for (int rank = 0; rank < ranks_of(wanted); ++rank) {
      const auto name = storage::rank_file_name(rank);
      EXPECT_EQ(slurp(to.path(kStep) / name), slurp(written.path(kStep) / name)) << name << " of " << name_of(sizes);
    }
  }
}

/// [60, 1000] in three parts along one dim, written by `write`: the most bytes that are held at once.
template <class Write>
int64_t peak_of(const Mesh::Cut& cut, const Write& write) {
  memory::install_meter();
  const TemporaryFolder folder;
  CheckpointStore from(folder / "from");
  on_mesh({.tensor = 3}, [&](Mesh& mesh) {
    const auto placement = mesh.place({60, 1000}, {cut});
    auto own = at::ones({60, 1000}, at::kDouble);
    own = own.narrow(cut.dim, placement.splits[0].first, placement.splits[0].count).contiguous();
    TrainingState state;
    state.tensors = {Parameter::placed("w", own, placement)};
    EXPECT_TRUE(save_checkpoint(from, kStep, state, mesh.world()));
  });
  const RankScope scope(0);
  const CheckpointReader reader(from, kStep);
  memory::reset_peak(0);
  const auto before = memory::account(0).live_bytes();
  write(reader, folder);
  return memory::account(0).peak_bytes() - before;
}

TEST(PlacedReshard, HoldsOnePartOrASlabThatJoinsSeveral) {
  const auto for_two = [](const CheckpointReader& from, const TemporaryFolder& folder) {
    CheckpointStore to(folder / "to");
    reshard(from, to, 2, along_same_dim(2, evenly(2)));
  };
  const auto merged = [](const CheckpointReader& from, const TemporaryFolder& folder) {
    merge_weights(from, folder / "merged.safetensors");
  };
  const Mesh::Cut rows = {.dim = 0}, columns = {.dim = 1};
  EXPECT_NEAR(peak_of(rows, for_two), 8 * 20 * 1000, 1024);
  EXPECT_NEAR(peak_of(rows, merged), 8 * 20 * 1000, 1024);
  EXPECT_NEAR(peak_of(columns, for_two), 8 * 60 * (334 + 500), 1024);
  EXPECT_NEAR(peak_of(columns, merged), 8 * 60 * (334 + 1000), 1024);
}

TEST(PlacedReshard, TheMergedFileIsTheSameForEveryMesh) {
  std::string of_one;
  for (const auto& sizes : meshes()) {
    const TemporaryFolder folder;
    CheckpointStore store(folder / "checkpoints");
    save_on(sizes, store);
    merge_weights(CheckpointReader(store, kStep), folder / "model.safetensors");
    const auto bytes = slurp(folder / "model.safetensors");
    if (of_one.empty()) of_one = bytes;
    EXPECT_EQ(bytes, of_one) << name_of(sizes);
  }
}

TEST(PlacedReshard, PythonReadsTheMergedFile) {
  if (!test::python_has_safetensors()) GTEST_SKIP() << test::python() << " lacks torch or safetensors";
  const TemporaryFolder folder;
  CheckpointStore store(folder / "checkpoints");
  save_on({.data = 2, .shard = 2, .pipeline = 2}, store);
  merge_weights(CheckpointReader(store, kStep), folder / "model.safetensors");
  const auto result = test::run_python(folder, R"(
import torch
from safetensors.torch import load_file
sizes = dict(column=((5, 7), 100), first=((2, 3), 200), flat=((3, 5), 300), grid=((11, 6, 3), 400), last=((), 700),
             nested=((13, 2), 800), norm=((4,), 900))
found = load_file('model.safetensors')
assert sorted(found) == sorted(sizes), sorted(found)
for name, (shape, first) in sizes.items():
    count = torch.Size(shape).numel()
    want = torch.arange(count, dtype=torch.float64).reshape(shape) + first + 1 / 3
    assert found[name].dtype == torch.float64 and torch.equal(found[name], want), name
)");
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(PlacedHash, IsTheSameForEveryMesh) {
  std::string of_one;
  for (const auto& sizes : meshes()) {
    std::string hash;
    on_mesh(sizes, [&](Mesh& mesh) {
      const auto own = weights_hash(placed_model(mesh), mesh.world());
      if (mesh.world().rank() == 0) hash = own;
    });
    if (of_one.empty()) of_one = hash;
    EXPECT_EQ(hash.size(), 32u);
    EXPECT_EQ(hash, of_one) << name_of(sizes);
  }
}

/// Each part is sent once, and what rank 0 holds not at all.
TEST(PlacedHash, SendsWhatRankZeroLacks) {
  std::mutex mutex;
  std::vector<int64_t> bytes(6);
  on_mesh({.data = 2, .tensor = 3}, [&](Mesh& mesh) {
    const auto placement = mesh.place({5, 7}, {{.dim = 1, .axis = Axis::tensor}});  // 3, 2, 2 columns
    const auto own = at::zeros({5, placement.splits[0].count}, at::kDouble);
    mesh.world().meter().reset();
    weights_hash({Parameter::replicated("a", at::ones({9})), Parameter::placed("w", own, placement)}, mesh.world());
    const std::lock_guard lock(mutex);
    auto counts = mesh.world().meter().counts();
    bytes[mesh.world().rank()] = counts["gather"].bytes;
  });
  EXPECT_EQ(bytes, (std::vector<int64_t>{0, 5 * 2 * 8, 5 * 2 * 8, 0, 0, 0}));
}

TEST(PlacedHash, PartsThatDoNotFitAreNamedOnEveryRank) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    const auto told_of = [&](const Tensor& tensor, const Placement& placement) {
      return text_of<c10::ValueError>([&] { weights_hash({Parameter::placed("w", tensor, placement)}, group); });
    };
    const int64_t rank = group.rank();
    EXPECT_EQ(told_of(at::ones({2}), {.splits = {{0, 2 * rank, 2, 7}}}),
              "tensor 'w' has 6 elements in all parts, wanted 7");
    EXPECT_EQ(told_of(at::ones({2}), {.splits = {{0, 0, 2, 6}}}),
              "tensor 'w' has [0..1] in rank 0 and in rank 1, wanted it in one");
    EXPECT_EQ(told_of(at::ones({2}, rank == 2 ? at::kDouble : at::kFloat), {.splits = {{0, 2 * rank, 2, 6}}}),
              "tensor 'w' has another type or other sizes on rank 2 than on rank 0");
  });
}

TEST(PlacedClip, EveryMeshHasTheNormOfOneDevice) {
  double square = 0;
  for (const auto& name : names_of_placed_model()) square += whole_of(name).square().sum().item<double>();
  for (const auto& sizes : meshes()) {
    std::mutex mutex;
    std::vector<double> norms;
    on_mesh(sizes, [&](Mesh& mesh) {
      const auto gradients = placed_model(mesh);
      const auto parameters = zeros_like(gradients);
      for (size_t i = 0; i < gradients.size(); ++i) parameters[i].tensor.mutable_grad() = gradients[i].tensor.clone();
      mesh.world().meter().reset();
      const auto norm = clip_grad_norm(parameters, 1, mesh.world());
      auto counts = mesh.world().meter().counts();
      EXPECT_EQ(counts["all_reduce"].calls, ranks_of(sizes) == 1 ? 0 : 1) << name_of(sizes);
      for (size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_TRUE(at::allclose(parameters[i].tensor.grad(), gradients[i].tensor / norm, 1e-6));
      }
      const std::lock_guard lock(mutex);
      norms.push_back(norm);
    });
    for (const auto norm : norms) {
      EXPECT_NEAR(norm / std::sqrt(square), 1, 1e-14) << name_of(sizes);
      EXPECT_EQ(norm, norms[0]);
    }
  }
}

/// A stage may have no parameters, or a replica that does not count: the message is the same on all ranks.
TEST(PlacedClip, ARankWithoutParametersTakesPart) {
  on_mesh({.data = 2, .pipeline = 2}, [](Mesh& mesh) {
    std::vector<Parameter> parameters;
    if (mesh.coordinate(Axis::pipeline) == 1) {
      parameters = {
          Parameter::placed("w", at::zeros({2}, at::kDouble), mesh.place({2}, {}, Mesh::Only{Axis::pipeline, {1}}))};
      parameters[0].tensor.mutable_grad() = at::tensor({3.0, 4.0}, at::kDouble);
    }
    mesh.world().meter().reset();
    EXPECT_EQ(clip_grad_norm(parameters, 10, mesh.world()), 5);
    EXPECT_EQ(mesh.world().meter().counts()["all_reduce"].calls, 1);
  });
}

TEST(PlacedOptimizer, ItsStateLiesAsTheWeightDoes) {
  on_mesh({.tensor = 2, .pipeline = 2}, [](Mesh& mesh) {
    const auto parameters = placed_model(mesh);
    const Optimizer optimizer(parameters, {.kind = OptimizerKind::adamw});
    const auto state = optimizer.state();
    ASSERT_EQ(state.size(), 3 * parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(state[i].placement, parameters[i].placement);
      EXPECT_EQ(state[i + 2 * parameters.size()].name, "optimizer.step." + parameters[i].name);
      EXPECT_EQ(state[i + 2 * parameters.size()].placement, parameters[i].placement.of_whole());
    }
  });
}

}  // namespace
}  // namespace tandem::train
