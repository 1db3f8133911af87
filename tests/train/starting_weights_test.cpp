#include "tandem/train/starting_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/weights_file.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"
#include "tests/train/placed_model.h"

namespace tandem::train {
namespace {

using storage::NamedTensor;
using test::spill;
using test::TemporaryFolder;
using test::text_of;
using Lines = std::vector<std::string>;

/// A trunk, an embedding and a head, as a library's model may have them.
std::vector<Parameter> model_of(double value, at::ScalarType type = at::kFloat) {
  const auto full = [&](at::IntArrayRef sizes) { return at::full(sizes, value, type); };
  return {Parameter::replicated("conv.weight", full({2, 3})), Parameter::replicated("embedding.weight", full({4, 2})),
          Parameter::replicated("head.weight", full({5, 4})),
          Parameter::replicated("bn.num_batches_tracked", at::full({}, value, at::kLong))};
}

const WeightRoles kRoles = {.may_miss = {"embedding.", "head."}, .may_differ = {"head."}};

std::vector<NamedTensor> named(const std::vector<Parameter>& weights, const std::string& before = "") {
  std::vector<NamedTensor> tensors;
  for (const auto& weight : weights) tensors.push_back({before + weight.name, weight.tensor});
  return tensors;
}

class StartingWeights : public testing::Test {
 protected:
  std::string write(const std::vector<NamedTensor>& tensors) const {
    const auto file = (folder_ / "w.safetensors").string();
    std::filesystem::remove(file);
    storage::write_safetensors(file, tensors);
    return file;
  }

  /// Fills `weights` and returns what is told.
  static Lines load(const std::string& file, const std::vector<Parameter>& weights, const std::string& prefix = "",
                    const WeightRoles& roles = kRoles) {
    const auto files = open_weights(locate_weights(file));
    const auto match = match_weights(files, "w.safetensors", weights, roles, prefix);
    fill_weights(files, match, weights);
    return lines_of(match, files, weights);
  }

  std::string fault(const std::vector<NamedTensor>& tensors) const {
    return text_of<Error>([&] { load(write(tensors), model_of(0)); });
  }

  TemporaryFolder folder_;
};

void expect_all(const std::vector<Parameter>& weights, double value) {
  for (const auto& weight : weights) EXPECT_TRUE(weight.tensor.eq(value).all().item<bool>()) << weight.name;
}

TEST_F(StartingWeights, OfAnyTypeFillAModel) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto weights = model_of(0);
    EXPECT_EQ(load(write(named(model_of(3, type))), weights), Lines());
    expect_all(weights, 3);
  }
}

TEST_F(StartingWeights, OfAnyProgramThatCallsTheModelByANameOfItsOwn) {
  for (const std::string before : {"module.", "_orig_mod.", "model.", "backbone.", "encoder.", "net.", "student.",
                                   "state_dict.", "module._orig_mod.", "state_dict.model.", "a.b.c.d."}) {
    auto tensors = named(model_of(3), before);
    auto weights = model_of(0);
    EXPECT_EQ(load(write(tensors), weights), Lines{"'" + before + "' taken off the names"});
    expect_all(weights, 3);
    for (const std::string other : {"n_averaged", "loss.weight", "optimizer.state.0", "zz.conv.bias"}) {
      tensors.push_back({other, at::ones({}, at::kLong)});
    }
    EXPECT_EQ(load(write(tensors), weights = model_of(0)),
              Lines{"'" + before + "' taken off the names; 4 others left out: 'loss.weight', 'n_averaged' and 2 more"});
    expect_all(weights, 3);
  }
}

TEST_F(StartingWeights, OfSeveralModelsOneIsChosen) {
  auto tensors = named(model_of(3), "student.net.");
  for (const auto& tensor : named(model_of(4), "teacher.net.")) tensors.push_back(tensor);
  EXPECT_EQ(fault(tensors),
            "weights is 'w.safetensors': all weights of this model are there behind each of 'student.net.', "
            "'teacher.net.', wanted them once: choose with weights_prefix=student.net. or weights_prefix=teacher.net.");
  for (const std::string chosen : {"teacher", "teacher.", "teacher.net", "teacher.net."}) {
    const auto weights = model_of(0);
    EXPECT_EQ(load(write(tensors), weights, chosen).size(), 1) << chosen;
    expect_all(weights, 4);
  }
  EXPECT_EQ(text_of<Error>([&] { load(write(tensors), model_of(0), "teach"); }),
            "weights is 'w.safetensors': 'conv.weight' is missing there behind 'teach.', wanted all weights of this "
            "model; the file also has 'student.net.bn.num_batches_tracked', 'student.net.conv.weight', "
            "'student.net.embedding.weight' and 5 more: give the model that they are of");
  for (auto& tensor : tensors) {  // a larger teacher
    if (tensor.name == "teacher.net.conv.weight") tensor.tensor = at::ones({2, 4});
  }
  const auto weights = model_of(0);
  load(write(tensors), weights);
  expect_all(weights, 3);
  tensors = named(model_of(3));
  for (const auto& tensor : named(model_of(4), "ema.")) tensors.push_back(tensor);
  EXPECT_EQ(load(write(tensors), weights),
            Lines{"'ema.bn.num_batches_tracked', 'ema.conv.weight', 'ema.embedding.weight' and 1 more left out: the "
                  "model has no such weights"});
  expect_all(weights, 3);
  load(write(tensors), weights, "ema");
  expect_all(weights, 4);
}

TEST_F(StartingWeights, CountersOfAnyTypeAndOfOneElementAreRead) {
  for (const auto type : {at::kHalf, at::kFloat, at::kDouble, at::kInt, at::kByte, at::kLong}) {
    for (const auto& sizes : {std::vector<int64_t>{}, std::vector<int64_t>{1}}) {
      auto tensors = named(model_of(3));
      tensors.back().tensor = at::full(sizes, 3, type);
      const auto weights = model_of(0);
      EXPECT_EQ(load(write(tensors), weights), Lines());
      expect_all(weights, 3);
    }
  }
}

TEST_F(StartingWeights, MissingNeedlessAndOddOnesAreTold) {
  const auto weights = model_of(0);
  const std::vector<NamedTensor> tensors = {{"conv.weight", at::ones({2, 3})},
                                            {"fc.bias", at::ones({7})},
                                            {"fc.weight", at::ones({7, 2})},
                                            {"head.weight", at::ones({7, 4})},
                                            {"optimizer.momentum_buffer.conv.weight", at::ones({2, 3})}};
  EXPECT_EQ(load(write(tensors), weights), (Lines{"'embedding.weight' not there: start as drawn",
                                                  "'head.weight' is [7, 4] there, wanted [5, 4]: starts as drawn",
                                                  "'fc.bias', 'fc.weight' left out: the model has no such weights"}));
  EXPECT_TRUE(weights[0].tensor.equal(at::ones({2, 3})));
  for (const size_t place : {1, 2, 3}) EXPECT_EQ(weights[place].tensor.abs().max().item<double>(), 0);
}

TEST_F(StartingWeights, OfOtherSizesMayBeResampled) {
  auto roles = kRoles;
  roles.resampled.push_back({"conv.weight", [](auto stored, auto wanted) { return stored.back() == wanted.back(); },
                             [](const Tensor& stored) {
                               return at::cat({stored[0].view({1, 3}), stored[6].view({1, 3})});
                             }});
  auto theirs = model_of(3);
  theirs[0] = Parameter::replicated("conv.weight", at::arange(21, at::kFloat).view({7, 3}));
  const auto ours = model_of(0);
  EXPECT_EQ(load(write(named(theirs, "net.")), ours, "", roles),
            Lines({"'net.' taken off the names", "'conv.weight' is [7, 3] there, wanted [2, 3]: resampled"}));
  EXPECT_TRUE(ours[0].tensor.equal(at::tensor({0, 1, 2, 18, 19, 20}, at::kFloat).view({2, 3})));
  theirs[0] = Parameter::replicated("conv.weight", at::zeros({2, 4}));
  EXPECT_EQ(
      text_of<SettingsError>([&] { load(write(named(theirs)), ours, "", roles); }),
      "weights is 'w.safetensors': 'conv.weight' is [2, 4] there, wanted [2, 3]: give the model, and images of the "
      "size and channels, that they are of");
}

TEST_F(StartingWeights, FaultsAreOneLine) {
  EXPECT_EQ(fault({{"embedding.weight", at::ones({4, 2})}}),
            "weights is 'w.safetensors': 'conv.weight' is missing there, wanted all weights of this model: give the "
            "model that they are of");
  EXPECT_EQ(
      fault({{"conv.weight", at::ones({3, 2})}, {"embedding.weight", at::ones({1, 2})}}),
      "weights is 'w.safetensors': 'conv.weight' is [3, 2] there, wanted [2, 3], and 1 more differ: give the model, "
      "and images of the size and channels, that they are of");
  EXPECT_EQ(fault({{"conv.weight", at::ones({2, 3}, at::kChar)}}),
            "weights is 'w.safetensors': 'conv.weight' is Char there, wanted floating-point numbers");
  EXPECT_EQ(fault({{"features.conv", at::ones({2, 3})}}),
            "weights is 'w.safetensors': 'conv.weight' is missing there, wanted all weights of this model; the file "
            "also has 'features.conv': give the model that they are of");
}

TEST_F(StartingWeights, NumbersThatCannotBeAreNamedByTheirPlace) {
  const auto fault_with = [&](const std::string& name, const Tensor& values) {
    auto tensors = named(model_of(1), "net.");
    for (auto& tensor : tensors) {
      if (tensor.name == "net." + name) tensor.tensor = values;
    }
    auto weights = model_of(0);
    weights.push_back(Parameter::replicated("bn.running_var", at::ones({4})));
    tensors.push_back({"net.bn.running_var", name == "bn.running_var" ? values : at::ones({4})});
    return text_of<DataError>([&] { load(write(tensors), weights); });
  };
  const auto odd = [](at::IntArrayRef sizes, int64_t place, double value) {
    auto tensor = at::ones(sizes, at::kDouble);
    tensor.view(-1)[place] = value;
    return tensor;
  };
  constexpr auto kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  const std::string begin = "weights is 'w.safetensors': 'net.", counter = begin + "bn.num_batches_tracked' is ",
                    leave = ": leave it out of the file to count from 0";
  EXPECT_EQ(fault_with("conv.weight", odd({2, 3}, 5, kInfinity)),
            begin + "conv.weight'[1, 2] is inf, wanted a finite number");
  EXPECT_EQ(fault_with("conv.weight", odd({2, 3}, 3, -kNaN)),
            begin + "conv.weight'[1, 0] is NaN, wanted a finite number");
  EXPECT_EQ(fault_with("conv.weight", odd({2, 3}, 1, 1e300)),
            begin + "conv.weight'[0, 1] is 1e+300, wanted a number that Float can hold");
  EXPECT_EQ(fault_with("bn.running_var", odd({4}, 3, -0.5)), begin + "bn.running_var'[3] is -0.5, wanted 0 or more");
  EXPECT_EQ(fault_with("bn.num_batches_tracked", odd({}, 0, 2.5)), counter + "2.5, wanted a whole number" + leave);
  EXPECT_EQ(fault_with("bn.num_batches_tracked", odd({1}, 0, kNaN)), counter + "NaN, wanted a whole number" + leave);
  EXPECT_EQ(fault_with("bn.num_batches_tracked", odd({}, 0, 1e19)), counter + "1e+19, wanted a whole number" + leave);
  EXPECT_EQ(fault_with("bn.num_batches_tracked", odd({}, 0, -2)), counter + "-2, wanted 0 or more");
}

TEST_F(StartingWeights, PathsThatLeadNowhereAreNamed) {
  const auto at = [&](const std::string& name) { return "weights is '" + (folder_ / name).string() + "', which "; };
  const std::string wanted = ", wanted a safetensors file, its index, or a run's folder";
  const auto fault_at = [&](const std::string& name) {
    return text_of<DataError>([&] { locate_weights(folder_ / name); });
  };
  EXPECT_EQ(fault_at("none"), at("none") + "does not exist" + wanted);
  spill(folder_ / "net.pth", "PK");
  EXPECT_EQ(fault_at("net.pth"), at("net.pth") + "is a pickle" + wanted +
                                     ": convert it in Python: safetensors.torch.save_file(state_dict, FILE)");
  spill(folder_ / "empty/readme", "");
  EXPECT_EQ(fault_at("empty"), at("empty") + "holds no weights and no whole checkpoint" + wanted);
  spill(folder_ / "bad.safetensors", "no header");
  EXPECT_THROW(open_weights(folder_ / "bad.safetensors"), DataError);
}

TEST_F(StartingWeights, AnIndexOfSeveralFilesIsOneModel) {
  const auto all = named(model_of(2));
  const auto folder = folder_ / "parts";
  std::filesystem::create_directory(folder);
  storage::write_safetensors(folder / "a.safetensors", std::span(all).first(2));
  storage::write_safetensors(folder / "b.safetensors", std::span(all).subspan(2));
  nlohmann::json index;
  for (size_t i = 0; i < all.size(); ++i) index["weight_map"][all[i].name] = i < 2 ? "a.safetensors" : "b.safetensors";
  spill(folder / storage::kIndexName, index.dump());
  const auto weights = model_of(0);
  EXPECT_EQ(load(folder.string(), weights), Lines());
  expect_all(weights, 2);
  index["weight_map"]["conv.weight"] = "b.safetensors";
  spill(folder / storage::kIndexName, index.dump());
  EXPECT_EQ(text_of<DataError>([&] { open_weights(folder / storage::kIndexName); }),
            "'" + (folder / storage::kIndexName).string() +
                "': tensor 'conv.weight' is missing in 'b.safetensors', where the index has it: the files belong to "
                "different copies, use another copy");
}

/// Every kind of placement, several boxes a rank among them, from what any other mesh has saved.
TEST_F(StartingWeights, AnyMeshStartsFromTheCheckpointOfAnyOther) {
  const std::vector<parallel::MeshSizes> some = {
      {}, {.data = 3}, {.shard = 2, .tensor = 2}, {.shard = 3, .pipeline = 2}};
  for (const auto& saved : some) {
    const auto run = folder_ / name_of(saved);
    CheckpointStore store(run / "checkpoints");
    comm::run_ranks(ranks_of(saved), [&](comm::ProcessGroup& world) {
      parallel::Mesh mesh(saved, world);
      ASSERT_TRUE(save_checkpoint(store, 4, {.tensors = placed_model(mesh), .identity = {}, .trainer = {}}, world));
    });
    for (const auto& wanted : some) {
      comm::run_ranks(ranks_of(wanted), [&](comm::ProcessGroup& world) {
        parallel::Mesh mesh(wanted, world);
        std::vector<Parameter> model, expected;
        for (const auto& tensor : placed_model(mesh)) {
          if (!is_state_name(tensor.name)) expected.push_back(tensor);
        }
        model = zeros_like(expected);
        const auto files = open_weights(locate_weights(run));
        // A stage of a pipeline lacks what other stages have.
        fill_weights(files, match_weights(files, "run", model, {}), model);
        for (size_t i = 0; i < model.size(); ++i) {
          EXPECT_TRUE(model[i].tensor.equal(expected[i].tensor)) << name_of(saved) << " " << model[i].name;
        }
      });
    }
  }
}

}  // namespace
}  // namespace tandem::train
