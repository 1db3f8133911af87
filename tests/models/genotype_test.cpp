#include "tandem/models/genotype.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/models/backbone.h"

namespace tandem::models {
namespace {

constexpr std::string_view kV2 =
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], normal_concat=[2, 3, 4, 5], "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0), "
    "('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=[2, 3, 4, 5])";

Genotype known(std::string_view name) { return *known_genotype(name); }

std::string fault_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing";
}

std::string fault_in(const std::string& text) {
  return fault_of([&] { parse_genotype(text, "g.txt"); });
}

TEST(Genotype, IsWrittenAsPublished) { EXPECT_EQ(to_text(known("darts-v2")), kV2); }

TEST(Genotype, BothFormsComeBack) {
  for (const auto name : genotype_names()) {
    for (const auto form : {GenotypeForm::flat, GenotypeForm::nested}) {
      EXPECT_EQ(parse_genotype(to_text(known(name), form), "text"), known(name)) << name;
    }
  }
}

TEST(Genotype, IsReadAsPythonWritesIt) {
  EXPECT_EQ(parse_genotype("DARTS_V2 = Genotype(reduce_concat=range(2, 6), reduce=[(\"max_pool_3x3\", 0),\n"
                           "  ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0),\n"
                           "  ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1),], normal_concat=(2,3,4,5),"
                           "normal=[[('sep_conv_3x3', 0), ('sep_conv_3x3', 1)], [('sep_conv_3x3', 0), "
                           "('sep_conv_3x3', 1)], [('sep_conv_3x3', 1), ('skip_connect', 0)], "
                           "[('skip_connect', 0), ('dil_conv_3x3', 2)]],\n)\n",
                           "text"),
            known("darts-v2"));
}

TEST(Genotype, ANodeMayHaveAnyNumberOfEdges) {
  const auto genotype = parse_genotype(
      "Genotype(normal=[[('none', 0)], [('skip_connect', 0), ('skip_connect', 1), ('skip_connect', 2)]], "
      "normal_concat=[3], reduce=[[('max_pool_3x3', 1)]], reduce_concat=[2])",
      "text");
  EXPECT_EQ(genotype.normal.nodes[1].size(), 3U);
  EXPECT_EQ(parse_genotype(to_text(genotype, GenotypeForm::nested), "text"), genotype);
  EXPECT_EQ(to_text(genotype), to_text(genotype, GenotypeForm::nested));
  EXPECT_THROW(to_text(genotype, GenotypeForm::flat), c10::ValueError);
}

TEST(Genotype, WhatIsNoneIsOneLine) {
  const std::string edge = "('skip_connect', 0)", two = edge + ", " + edge;
  const auto with = [&](const std::string& normal, const std::string& concat = "[2]") {
    return "Genotype(normal=" + normal + ", normal_concat=" + concat + ", reduce=[" + two + "], reduce_concat=[2])";
  };
  const std::string begin = "g.txt: the genotype";
  EXPECT_EQ(fault_in(""), begin + " is not there, wanted Genotype(normal=[...], ...)");
  EXPECT_EQ(fault_in("Genotype(normal"), begin + " has its end at byte 15, wanted '='");
  EXPECT_EQ(fault_in("Genotype(normal=[1)"), begin + " has ')' at byte 18, wanted ']'");
  EXPECT_EQ(fault_in("Genotype()"), begin + " has no normal");
  EXPECT_EQ(fault_in("Genotype(normal=[], normal=[])"), begin + " has normal twice");
  EXPECT_EQ(fault_in("Genotype(weights=[])"),
            begin + " has '=[])' at byte 16, wanted normal=, normal_concat=, reduce= or reduce_concat=");
  EXPECT_EQ(fault_in(with("[" + two + "]") + " and more"), begin + " has 'and more' at byte 149, wanted its end");
  EXPECT_EQ(fault_in(with("[]")), begin + "'s normal cell has 0 nodes, wanted 1..64");
  EXPECT_EQ(fault_in(with("[" + edge + "]")), begin + "'s normal cell has 1 edges, wanted two a node");
  EXPECT_EQ(fault_in(with("[[]]")), begin + "'s normal cell has a node without edges");
  EXPECT_EQ(fault_in(with("3")), begin + "'s normal cell has a list of nodes that is no list");
  EXPECT_EQ(fault_in(with("[('sep_conv_3x4', 0), ('none', 1)]")),
            begin + "'s normal cell has operation 'sep_conv_3x4', did you mean sep_conv_3x3?");
  EXPECT_EQ(fault_in(with("[('__import__', 0), ('none', 1)]")),
            begin + "'s normal cell has operation '__import__', which is none of DARTS");
  EXPECT_EQ(fault_in(with("[('none', 2), ('none', 1)]")), begin + "'s normal cell has input 2 at node 0, wanted 0..1");
  EXPECT_EQ(fault_in(with("[" + two + "]", "[3]")),
            begin + "'s normal cell has an output that is no number of 0..2, or is there twice");
  EXPECT_EQ(fault_in(with("[" + two + "]", "[2, 2]")),
            begin + "'s normal cell has an output that is no number of 0..2, or is there twice");
  EXPECT_EQ(fault_in(with("[" + two + "]", "[]")),
            begin + "'s normal cell has no outputs, wanted one or more in normal_concat");
  EXPECT_EQ(
      fault_in("Genotype(normal=[" + two + "], normal_concat=[1, 2], reduce=[" + two + "], reduce_concat=[2, 1])"),
      begin +
          "'s reduce cell has the output 1, an input that it makes half as high and wide, wanted 2..2 in "
          "reduce_concat");
  EXPECT_EQ(fault_in(with("[[[[[[[[[1]]]]]]]]]")),
            begin + " has '[[[[1]]]]]]]' at byte 21, wanted no more lists in lists");
  EXPECT_EQ(fault_in(with("range(0, 999999)")), begin + " has ', normal_con' at byte 32, wanted a shorter range");
  EXPECT_EQ(fault_in(std::string(70000, ' ')), begin + " has 70000 bytes, wanted at most 65536");
}

TEST(Genotype, ACellOfNasBench201) {
  const std::string text = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|avg_pool_3x3~0|none~1|nor_conv_3x3~2|";
  const auto cell = parse_bench_201(text, "bench");
  EXPECT_EQ(cell.nodes.size(), 3U);
  EXPECT_EQ(cell.nodes[1][1], (GenotypeEdge{"skip_connect", 1}));
  EXPECT_EQ(cell.concat, std::vector<int64_t>{3});
  EXPECT_EQ(to_bench_201_text(cell), text);
  const auto fault = [](const std::string& cell) { return fault_of([&] { parse_bench_201(cell, "bench"); }); };
  EXPECT_EQ(
      fault("|sep_conv_3x3~0|"),
      "bench: the genotype has operation 'sep_conv_3x3', wanted none, skip_connect, nor_conv_1x1, nor_conv_3x3 or "
      "avg_pool_3x3");
  EXPECT_EQ(fault("|none~1|"), "bench: the genotype has '|' at byte 7, wanted an edge from value 0 before it");
  EXPECT_EQ(fault("|none~0|+|none~0|"),
            "bench: the genotype has operation '', wanted none, skip_connect, nor_conv_1x1, "
            "nor_conv_3x3 or avg_pool_3x3");
}

struct Count {
  std::string_view name;
  int64_t parameters, with_auxiliary = 0;  // 0: not published
  int64_t channels = 36, cells = 20, classes = 10;
  Stem stem = Stem::cifar;
};

constexpr const char* kSkips =
    "Genotype(normal=[('skip_connect', 0), ('skip_connect', 1), ('skip_connect', 0), ('skip_connect', 1), "
    "('skip_connect', 0), ('skip_connect', 1), ('skip_connect', 0), ('skip_connect', 1)], normal_concat=range(2, 6), "
    "reduce=[('skip_connect', 0), ('skip_connect', 1), ('skip_connect', 0), ('skip_connect', 1), "
    "('skip_connect', 0), ('skip_connect', 1), ('skip_connect', 0), ('skip_connect', 1)], reduce_concat=range(2, 6))";

/// With the classifiers, which have a bias.
int64_t parameters_of(const Count& of, bool has_auxiliary) {
  const auto model = make({.name = std::string(of.name),
                           .channels = 3,
                           .size = of.stem == Stem::cifar ? 32 : 64,
                           .embedding = 0,
                           .cells = of.cells,
                           .cell_channels = of.channels,
                           .stem = of.stem,
                           .has_auxiliary = has_auxiliary});
  int64_t count = (model->dim() + 1) * of.classes;
  if (has_auxiliary) count += (model->auxiliary_dim() + 1) * of.classes;
  for (const auto& parameter : model->parameters()) count += parameter.numel();
  return count;
}

/// Of the networks of quark0/darts, as its modules count them.
TEST(GenotypeNetwork, HasAsManyParametersAsPublished) {
  const std::vector<Count> counts = {
      {"darts-v2", 3349342, 3825768},
      {"darts-v1", 3169414, 3645840},
      {"pc-darts", 3634678, 4111104},
      {"p-darts", 3433798, 3910224},
      {"nasnet", 3830950},
      {"amoebanet", 3145078},
      {"drnas", 4099294, 4575720},
      {"pc-darts-imagenet", 3721510, 4197936},
      {"drnas-imagenet", 4048750, 4525176},
      {"darts-v2", 3401272, 0, 36, 20, 100},
      {"darts-v2", 246106, 681572, 16, 8},
      {"darts-v2", 4718752, 5979528, 48, 14, 1000, Stem::imagenet},
      {"pc-darts-imagenet", 5342464, 6603240, 48, 14, 1000, Stem::imagenet},
      {"pc-darts", 5270560, 6531336, 48, 14, 1000, Stem::imagenet},
      {"p-darts", 4944352, 6205128, 48, 14, 1000, Stem::imagenet},
      {"drnas-imagenet", 5726368, 6987144, 48, 14, 1000, Stem::imagenet},
      {kSkips, 1580950},
  };
  for (const auto& count : counts) {
    EXPECT_EQ(parameters_of(count, false), count.parameters) << count.name;
    if (count.with_auxiliary > 0) EXPECT_EQ(parameters_of(count, true), count.with_auxiliary) << count.name;
  }
}

std::string refusal(const ModelOptions& options) {
  try {
    make(options);
  } catch (const SettingsError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(GenotypeNetwork, OptionsThatDoNotServe) {
  const ModelOptions right = {.name = "darts-v2", .size = 32, .cells = 3, .cell_channels = 4};
  const auto with = [&](const auto& change) {
    auto options = right;
    change(options);
    return refusal(options);
  };
  EXPECT_EQ(refusal(right), "nothing");
  EXPECT_EQ(with([](auto& options) { options.cells = 2; }),
            "cells is 2, wanted 3 or more: of fewer, none keeps the image's size");
  EXPECT_EQ(with([](auto& options) { options.size = 30; }),
            "size is 30 with a network of cells, wanted a multiple of 4, by which it divides the image's sides");
  EXPECT_EQ(with([](auto& options) { options.size = 4, options.has_auxiliary = true; }),
            "size is 4 with an auxiliary classifier, wanted 8 or more");
  EXPECT_EQ(with([](auto& options) { options.norm = Norm::abn_leaky; }),
            "norm has an activation of its own, wanted another one: in a network of cells the activation comes before "
            "the convolution");
  EXPECT_EQ(with([](auto& options) { options.name = "darts-v3"; }).substr(0, 40),
            "model is 'darts-v3', wanted one of resne");
}

TEST(GenotypeNetwork, ARankCanHoldSomeOfItsBlocks) {
  ModelOptions options = {
      .name = "darts-v1", .channels = 1, .size = 16, .embedding = 8, .cells = 4, .cell_channels = 4};
  const auto whole = make(options);
  const auto images = at::rand({3, 1, 16, 16});
  memory::Flow flow = {images};
  ASSERT_EQ(whole->num_blocks(), 6);
  for (const auto& [first, last] : {std::pair(0, 1), std::pair(2, 4), std::pair(5, 5)}) {
    options.blocks = {{first, last}};
    flow = memory::run(make(options)->chain(), flow);
  }
  EXPECT_TRUE(flow.at(0).equal(whole->forward(images)));
}

/// Of genotypes that leave out nodes, inputs, cells, or all.
const std::vector<std::string> kLeaveOut = [] {
  const std::string conv = "('sep_conv_3x3', 0), ('sep_conv_3x3', 1)", noise = "('noise', 0), ('noise', 1)";
  const std::string one = "('sep_conv_3x3', 0), ('skip_connect', 0)", reads_none = "('none', 0), ('none', 1)";
  const auto of = [](const std::string& normal, const std::string& reduce, const std::string& concat = "[2, 3]") {
    const auto text = [](const std::string& node) { return "=[" + node + ", ('skip_connect', 2), ('none', 2)]"; };
    return "Genotype(normal" + text(normal) + ", normal_concat=" + concat + ", reduce" + text(reduce) +
           ", reduce_concat=" + concat + ")";
  };
  return std::vector<std::string>{
      of(conv, conv, "[2]"),
      of(one, conv),
      of(conv, one),
      of(one, one),
      of(noise, conv),
      of(conv, noise),
      of(noise, noise),
      of(one, noise),
      of(reads_none, conv),
      "darts-v2",
      "amoebanet",
      "Genotype(normal=[('sep_conv_3x3', 0), ('dil_conv_3x3', 1), ('sep_conv_5x5', 1), ('noise', 0)], "
      "normal_concat=[0, 3], reduce=[('sep_conv_3x3', 0), ('dil_conv_3x3', 1), ('noise', 0), ('noise', 2)], "
      "reduce_concat=[3])"};
}();

TEST(GenotypeNetwork, TrainsJustWhatItsOutputsDependOn) {
  size_t left_out = 0;
  for (const auto& name : kLeaveOut) {
    for (const auto stem : {Stem::cifar, Stem::imagenet}) {
      for (const bool has_auxiliary : {false, true}) {
        const int64_t size = stem == Stem::cifar ? 8 : 64;
        const auto model = make({.name = name,
                                 .size = size,
                                 .embedding = 0,
                                 .cells = 4,
                                 .cell_channels = 4,
                                 .stem = stem,
                                 .has_auxiliary = has_auxiliary});
        const auto outputs = memory::run(model->chain(), memory::Flow{at::rand({2, 1, size, size})});
        Tensor loss = outputs[0].sum();
        if (has_auxiliary) loss = loss + outputs[1].sum();
        if (loss.requires_grad()) loss.backward();
        for (const auto& parameter : model->named_parameters()) {
          EXPECT_EQ(parameter->requires_grad(), parameter->grad().defined()) << parameter.key() << " of " << name;
          left_out += parameter->requires_grad() ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(left_out, 1000);
}

}  // namespace
}  // namespace tandem::models
