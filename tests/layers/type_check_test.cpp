#include "tandem/layers/type_check.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/region.h"
#include "tandem/layers/convolution.h"
#include "tandem/layers/dropout.h"
#include "tandem/layers/placed.h"
#include "tandem/layers/term.h"
#include "tandem/layers/transformer.h"
#include "tandem/parallel/mesh.h"
#include "tests/support/text_of.h"

namespace tandem::layers {
namespace {

constexpr parallel::Axes kTensor = {parallel::Axis::tensor}, kData = {parallel::Axis::data};
constexpr int64_t kRows = 4, kWidth = 6, kHidden = 8;

/// A model's layers on one of the ranks of two axes of two, of which the others are imagined, in one process and
/// without data.
class Plan {
 public:
  Plan()
      : world_(comm::make_rehearsal_group(0, 4, comm::Transport::memory)), mesh_({.data = 2, .tensor = 2}, *world_) {}

  comm::ProcessGroup& tensor() { return mesh_.group(parallel::Axis::tensor); }
  comm::ProcessGroup& data() { return mesh_.group(parallel::Axis::data); }

  template <class Made>
  std::shared_ptr<Made> add(const std::string& name, std::shared_ptr<Made> layer) {
    return model_.register_module(name, std::move(layer));
  }

  /// Runs `forward` on rows that this rank shares with the others along tensor. `gives`: what its result should be.
  std::string fault(const std::function<Tensor(const Tensor&)>& forward, Along gives = Along::invariant,
                    bool has_unequal_rows = false, at::IntArrayRef sizes = {kRows, kWidth}) {
    initialize(model_, 1);
    return test::text_of<TypeError>([&] {
      TypeCheck check({{.axes = kTensor, .group = &tensor()},
                       {.axes = kData, .group = &data(), .sums_gradients = true, .has_unequal_rows = has_unequal_rows}},
                      parameters_of(model_, mesh_));
      const auto x = at::ones(sizes).requires_grad_();
      check.know(x, kTensor, Along::invariant);
      check.know(x, kData, Along::varying);
      const auto y = check.run({{memory::make_block("block", {}, forward)}}, {x})[0];
      check.expect("the result", y, kTensor, gives);
      if (y.dim() == 0) check.expect("the loss", y, kData, Along::partial);
    });
  }

  torch::nn::Module& model() { return model_; }
  parallel::Mesh& mesh() { return mesh_; }

 private:
  std::unique_ptr<comm::ProcessGroup> world_;
  parallel::Mesh mesh_;
  torch::nn::Module model_{"Model"};
};

/// The feed-forward pair, with what may be wrong about it.
struct Pair {
  explicit Pair(Plan& plan, ColumnLinear::Options first = {.gathers = false})
      : group(plan.tensor()),
        hidden(group, kHidden),
        up(plan.add("up", std::make_shared<ColumnLinear>(kWidth, hidden, first))),
        down(plan.add("down", std::make_shared<RowLinear>(hidden, kWidth, RowLinear::Options{}))) {}

  Tensor operator()(const Tensor& x) const { return x + down->forward(at::gelu(up->forward(x))); }

  /// This rank's term of the second layer.
  Tensor term(const Tensor& x) const {
    const auto inner = at::gelu(up->forward(x));
    return term_of(at::linear(inner, down->named_parameters()["weight"]), group);
  }

  comm::ProcessGroup& group;
  Division hidden;
  std::shared_ptr<ColumnLinear> up;
  std::shared_ptr<RowLinear> down;
};

constexpr auto kNone = "nothing thrown";

TEST(TypeCheck, LetsLayersPass) {
  Plan plan;
  const Pair pair(plan);
  const auto attention = plan.add("attn", std::make_shared<Attention>(kWidth, Division(plan.tensor(), 2)));
  const auto norm = plan.add("norm", std::make_shared<LayerNorm>(kWidth));
  EXPECT_EQ(plan.fault([&](const Tensor& x) {
    const auto tokens = x.unsqueeze(0);
    return norm->forward(pair(tokens + attention->forward(tokens)));
  }),
            kNone);
  EXPECT_EQ(plan.fault(pair), kNone) << "of whole rows";
}

TEST(TypeCheck, AMissingCopyToRegion) {
  Plan plan;
  const Pair pair(plan, {.copies = false, .gathers = false});
  EXPECT_EQ(plan.fault(pair),
            "types: up: aten::linear of an invariant value and a varying one along tensor: the gradient of the "
            "first is a sum over the ranks: copy_to_region()");
}

TEST(TypeCheck, AMissingReduceFromRegion) {
  Plan plan;
  const Pair pair(plan);
  EXPECT_EQ(plan.fault([&](const Tensor& x) { return x + pair.term(x); }),
            "types: down: aten::add of a partial value and an invariant one along tensor: sum it over the ranks "
            "first: reduce_from_region()");
  EXPECT_EQ(plan.fault([&](const Tensor& x) { return at::gelu(pair.term(x)); }),
            "types: down: aten::gelu of a partial value along tensor: sum it over the ranks first: "
            "reduce_from_region()");
}

TEST(TypeCheck, AReduceDoneTwice) {
  Plan plan;
  const Pair pair(plan);
  EXPECT_EQ(plan.fault([&](const Tensor& x) { return comm::reduce_from_region(pair(x), pair.group); }),
            "types: down: reduce_from_region of a value that is invariant along tensor: wanted partial");
}

TEST(TypeCheck, ABiasBeforeTheReduce) {
  Plan plan;
  const Pair pair(plan);
  const auto bias = [&] { return pair.down->named_parameters()["bias"]; };
  EXPECT_EQ(plan.fault([&](const Tensor& x) { return comm::reduce_from_region(pair.term(x) + bias(), pair.group); }),
            "types: down: aten::add of a partial value and an invariant one along tensor: sum it over the ranks "
            "first: reduce_from_region()");
}

TEST(TypeCheck, ATiedWeightTwiceInTheNorm) {
  Plan plan;
  const auto embedding = plan.add("embedding", std::make_shared<Linear>(kWidth, kWidth, /*bias=*/false));
  auto parameters = parameters_of(plan.model(), plan.mesh());
  parameters.push_back(parallel::Parameter::replicated("head.weight", parameters[0].tensor));
  EXPECT_EQ(test::text_of<TypeError>([&] {
              TypeCheck({{kTensor, &plan.tensor()}}, parameters);
            }),
            "types: head.weight is the weight of embedding, too, and would count twice in a norm of gradients, wanted "
            "each tensor once: list it under its first name");
}

/// all_gather gives a value whose gradient is a sum over the ranks: of a loss that all have alike, N times its own.
TEST(TypeCheck, ALossCountedOnceARank) {
  Plan plan;
  const Division hidden(plan.tensor(), kHidden);
  const auto up =
      plan.add("up", std::make_shared<ColumnLinear>(kWidth, hidden, ColumnLinear::Options{.gathers = false}));
  EXPECT_EQ(plan.fault([&](const Tensor& x) {
    return comm::all_gather(up->forward(x), plan.tensor(), 1, hidden.counts()).pow(2).sum();
  }),
            "types: the result of a value that is replicated along tensor: wanted invariant");
}

class WholeBatchNorm : public Layer {
 public:
  explicit WholeBatchNorm(int64_t channels) : Layer("BatchNorm") {
    weight = register_parameter("weight", at::ones({channels}));
    bias = register_parameter("bias", at::zeros({channels}));
  }
  void initialize(uint64_t, const std::string&) override {}
  Tensor weight, bias;
};

TEST(TypeCheck, ABatchNormOverPartOfTheChannels) {
  Plan plan;
  const Conv2d::Options shape = {.in = 3, .out = kHidden};
  const Division channels(plan.tensor(), kHidden);
  const auto conv = plan.add("conv1", std::make_shared<OutputConv2d>(shape, channels, /*gathers=*/false));
  const auto norm = plan.add("bn1", std::make_shared<WholeBatchNorm>(channels.count()));
  EXPECT_EQ(plan.fault(
                [&](const Tensor& x) {
                  return at::batch_norm(conv->forward(x), norm->weight, norm->bias, {}, {}, true, 0.1, 1e-5, false);
                },
                Along::varying, false, {2, 3, 4, 4}),
            "types: bn1: aten::batch_norm of an invariant value and a varying one along tensor: the gradient of "
            "the first is a sum over the ranks: copy_to_region()");
}

TEST(TypeCheck, ALayerNormWhoseGradientIsNotSummedOverASplitSequence) {
  Plan plan;
  const auto wrong = plan.add("norm", std::make_shared<LayerNorm>(kWidth));
  const auto right = plan.add("other", std::make_shared<LayerNorm>(kWidth, &plan.tensor()));
  const auto with = [&](const LayerNorm& norm) {
    return plan.fault([&](const Tensor& x) { return norm.forward(comm::scatter_to_region(x, plan.tensor(), 0)); },
                      Along::varying);
  };
  EXPECT_EQ(with(*wrong),
            "types: norm: aten::layer_norm of an invariant value and a varying one along tensor: the gradient of the "
            "first is a sum over the ranks: copy_to_region()");
  EXPECT_EQ(with(*right), kNone);
}

TEST(TypeCheck, ADropoutThatIsEqualOnSplitValues) {
  Plan plan;
  const Division hidden(plan.tensor(), kHidden);
  const auto up =
      plan.add("up", std::make_shared<ColumnLinear>(kWidth, hidden, ColumnLinear::Options{.gathers = false}));
  const auto with = [&](const Dropout& dropout) {
    return plan.fault([&](const Tensor& x) { return dropout.forward(up->forward(x)); }, Along::varying);
  };
  EXPECT_EQ(
      with(Dropout(0.5, "drop")),
      "types: up: dropout of a varying value, of which each rank draws the same numbers, along tensor: draw by the "
      "place in the whole: Dropout::Divided");
  EXPECT_EQ(with(Dropout(0.5, "drop", Dropout::Divided{1, hidden})), kNone);
}

TEST(TypeCheck, UnevenRowsAveragedOverTheRanks) {
  Plan plan;
  const Pair pair(plan);
  EXPECT_EQ(
      plan.fault([&](const Tensor& x) { return term_of(pair(x).mean(), plan.data()); }, Along::invariant,
                 /*has_unequal_rows=*/true),
      "types: the loss of a mean of this rank's rows, of which other ranks have more or fewer, along data: weight "
      "it by the number of rows");
  EXPECT_EQ(plan.fault([&](const Tensor& x) { return term_of(pair(x).mean() * kRows / 7, plan.data()); },
                       Along::invariant, /*has_unequal_rows=*/true),
            kNone);
}

TEST(TypeCheck, AGatheredOutputWhoseGradientIsNotSplit) {
  Plan plan;
  const Division hidden(plan.tensor(), kWidth);
  const auto up =
      plan.add("up", std::make_shared<ColumnLinear>(kWidth, hidden, ColumnLinear::Options{.gathers = false}));
  const auto with = [&](const auto& gather) {
    return plan.fault([&](const Tensor& x) { return x + gather(up->forward(x)); });
  };
  EXPECT_EQ(with([&](const Tensor& y) { return comm::all_gather(y, plan.tensor(), 1, hidden.counts()); }),
            "types: up: aten::add of an invariant value and a replicated one along tensor: the gradient of the second "
            "would be summed: gather_from_region(), or reduce_from_region()");
  EXPECT_EQ(with([&](const Tensor& y) { return comm::gather_from_region(y, plan.tensor(), 1, hidden.counts()); }),
            kNone);
}

/// The head sums over the ranks along tensor, while those along data share the batch.
TEST(TypeCheck, AHeadOverAnotherGroupThanTheBatchs) {
  Plan plan;
  const auto over = [&](comm::ProcessGroup& group) {
    return plan.fault([&](const Tensor& x) { return comm::reduce_from_region(term_of(x.sum(), group), group); });
  };
  EXPECT_EQ(over(plan.tensor()), "types: the loss of a value that is varying along data: wanted partial");
}

}  // namespace
}  // namespace tandem::layers
