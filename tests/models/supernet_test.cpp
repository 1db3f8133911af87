#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/base/tangent.h"
#include "tandem/memory/recompute.h"
#include "tandem/models/backbone.h"
#include "tandem/models/cells/supernet.h"
#include "tandem/models/search_method.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

using test::text_of;
using torch::autograd::grad;

ModelOptions sizes(int64_t cells = 8, int64_t cell_channels = 16) {
  return {.name = "search:darts", .channels = 3, .embedding = 0, .cells = cells, .cell_channels = cell_channels};
}

ModelOptions small(Norm norm, std::string_view method = "darts") {
  auto options = sizes(3, 4);
  options.search_method = method, options.search_partial = 2;
  options.norm = norm;
  options.channels = 2;
  options.size = 8;
  return options;
}

const Space& small_space() {
  static const auto space = uniform_space(
      "small", 2, {"none", "max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "dil_conv_5x5"});
  return space;
}

Tensor random(const std::vector<int64_t>& shape, uint64_t stream) {
  auto values = at::empty(shape);
  fill_normal_(values, 1.0, 5, stream);
  return values.to(at::kDouble);
}

/// A network in float64 with alphas that differ, images, and what its features are summed with.
struct Set {
  explicit Set(const Space& space, Norm norm = Norm::batch, std::string_view method = "darts")
      : net(space, small(norm, method)) {
    net.to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (const auto& tensor : alphas()) tensor.mul_(500);
  }

  Tensor alpha(const std::string& kind) const { return net.named_parameters()["alphas." + kind]; }
  std::vector<Tensor> alphas() const {
    return of_names([](const std::string& name) { return is_alpha(name); });
  }
  std::vector<Tensor> weights() const {
    return of_names([](const std::string& name) { return !is_alpha(name); });
  }
  Tensor loss() const { return loss(net.chain()); }
  Tensor loss(const memory::Chain& chain) const { return (memory::run(chain, images) * upstream).sum(); }

  static bool is_alpha(const std::string& name) { return name.starts_with(kAlphas); }

  template <typename Wanted>
  std::vector<Tensor> of_names(const Wanted& is_wanted) const {
    std::vector<Tensor> found;
    for (const auto& entry : net.named_parameters()) {
      if (is_wanted(entry.key())) found.push_back(entry.value());
    }
    return found;
  }

  Supernet net;
  Tensor images = random({5, 2, 8, 8}, 1), upstream = random({5, 32}, 2);
};

/// Each block computed again in backward.
memory::Chain with_regions(memory::Chain chain) {
  for (auto& block : chain.blocks) {
    block.forward = [forward = block.forward, modules = block.modules](const memory::Flow& flow) {
      return memory::recompute(forward, flow, {.modules = modules});
    };
  }
  return chain;
}

TEST(Supernet, HasAsManyParametersAsPublished) {
  const auto parameters = [](const ModelOptions& options) {
    constexpr int64_t kClasses = 10;
    const auto net = make(options);
    int64_t count = (net->dim() + 1) * kClasses;
    for (const auto& entry : net->named_parameters()) {
      if (!entry.key().starts_with(kAlphas)) count += entry.value().numel();
    }
    return count;
  };
  EXPECT_EQ(parameters(sizes()), 1'930'618);
  auto grey = sizes();
  grey.channels = 1, grey.size = 28;
  EXPECT_EQ(parameters(grey), 1'929'754);
  EXPECT_EQ(parameters(sizes(5)), 1'275'834);
  EXPECT_EQ(parameters(sizes(20)), 4'548'730);
  EXPECT_EQ(parameters(sizes(8, 8)), 597'890);
  EXPECT_EQ(parameters(sizes(3, 8)), 209'442);
  EXPECT_EQ(parameters(sizes(3, 4)), 72'854);
}

TEST(Supernet, HasAsManyBuffersAsPublished) {
  const auto buffers = make(sizes())->buffers();
  int64_t numbers = 0;
  for (const auto& buffer : buffers) numbers += buffer.numel();
  EXPECT_EQ(buffers.size(), 2787U);
  EXPECT_EQ(numbers, 75'521);
}

TEST(Supernet, AlphasAreSmallAndDrawnByTheirNames) {
  const auto alphas = [](uint64_t seed) {
    auto options = sizes(3, 4);
    options.seed = seed;
    const auto net = make(options);
    return std::vector{net->named_parameters()["alphas.normal"].detach(),
                       net->named_parameters()["alphas.reduce"].detach()};
  };
  const auto first = alphas(7), again = alphas(7), other = alphas(8);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first[i].sizes(), (std::vector<int64_t>{14, 8}));
    EXPECT_NEAR(first[i].std().item<double>(), 1e-3, 2e-4);
    EXPECT_TRUE(first[i].equal(again[i]));
    EXPECT_FALSE(first[i].equal(other[i]));
  }
  EXPECT_FALSE(first[0].equal(first[1]));
}

TEST(Supernet, TheWeightOfAnOperationScalesIt) {
  Set set(small_space());
  set.net.eval();
  const auto features = [&](int64_t normal, int64_t reduce) {
    const at::NoGradGuard no_grad;
    for (const auto& [kind, operation] : {std::pair("normal", normal), {"reduce", reduce}}) {
      set.alpha(kind).fill_(-1e3);
      set.alpha(kind).select(1, operation).fill_(0);
    }
    return set.net.forward(set.images);
  };
  EXPECT_EQ(features(0, 0).abs().max().item<double>(), 0) << "nothing but zeros";
  EXPECT_FALSE(features(3, 3).allclose(features(3, 4)));
  EXPECT_FALSE(features(3, 3).allclose(features(1, 3)));
}

/// gdas, whose weights of an edge are a step of its alphas, has no such derivative.
TEST(Supernet, GradientsOfAlphasEqualDifferences) {
  const ContextScope scope({.progress = 0.25});
  for (const auto* method : {"darts", "pc-darts", "darts-minus"}) {
    SCOPED_TRACE(method);
    Set set(small_space(), Norm::batch, method);
    const auto alphas = set.alphas();
    const auto exact = grad({set.loss()}, alphas);
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < alphas.size(); ++i) {
      for (int64_t number : {0, 2, 4}) {
        const auto entry = alphas[i].view(-1)[number];
        const double e = 1e-6;
        entry.add_(e);
        const double above = set.loss().item<double>();
        entry.sub_(2 * e);
        const double below = set.loss().item<double>();
        entry.add_(e);
        EXPECT_NEAR(exact[i].view(-1)[number].item<double>(), (above - below) / (2 * e), 1e-6) << i;
      }
    }
  }
}

TEST(Supernet, RecomputationGivesTheSameBits) {
  const ContextScope scope({.seed = 3, .step = 5, .progress = 0.25});
  for (const auto& method : search_methods()) {
    SCOPED_TRACE(std::string(method.name));
    const Set set(small_space(), Norm::batch, method.name);
    std::vector<Tensor> parameters;
    for (const auto& each : {set.alphas(), set.weights()})
      parameters.insert(parameters.end(), each.begin(), each.end());
    const auto gradients = [&](const memory::Chain& chain) {
      return grad({set.loss(chain)}, parameters, {}, std::nullopt, false, /*allow_unused=*/true);
    };
    const auto plain = gradients(set.net.chain()), recomputed = gradients(with_regions(set.net.chain()));
    for (size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(plain[i].defined(), recomputed[i].defined()) << i;
      if (plain[i].defined()) EXPECT_TRUE(plain[i].equal(recomputed[i])) << i;
    }
  }
}

/// d/da of (dL/dw . v): backward through backward, and by tangents of the weights, also computed again.
void check_products(const Set& set) {
  auto weights = set.weights();
  std::vector<Tensor> along, used, along_used;
  for (const auto& weight : weights) along.push_back(random(weight.sizes().vec(), 9 + along.size()));
  const auto first = grad({set.loss()}, weights, {}, std::nullopt, /*create_graph=*/true, /*allow_unused=*/true);
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i].defined()) used.push_back(first[i]), along_used.push_back(along[i]);
  }
  const auto expected = grad(used, set.alphas(), along_used);
  for (auto& weight : weights) weight.requires_grad_(false);
  const TangentScope tangents(weights, along);
  for (const auto& chain : {set.net.chain(), with_regions(set.net.chain())}) {
    const auto tangent = tangent_of(set.loss(chain));
    const c10::AutoFwGradMode no_tangents(false);
    const auto product = grad({tangent}, set.alphas());
    for (size_t i = 0; i < product.size(); ++i) {
      EXPECT_GT(expected[i].norm().item<double>(), 0);
      EXPECT_LT((product[i] - expected[i]).norm().item<double>(), 1e-12 * expected[i].norm().item<double>()) << i;
    }
  }
}

TEST(Supernet, CanBeDifferentiatedTwice) {
  for (const auto norm : {Norm::batch, Norm::group, Norm::ghost, Norm::none}) {
    SCOPED_TRACE(static_cast<int>(norm));
    check_products(Set(small_space(), norm));
  }
}

TEST(Supernet, CanBeDifferentiatedTwiceByEachMethod) {
  const ContextScope scope({.seed = 3, .step = 5, .progress = 0.25});
  for (const auto& method : search_methods()) {
    SCOPED_TRACE(std::string(method.name));
    check_products(Set(small_space(), Norm::batch, method.name));
  }
}

TEST(Supernet, TheProductIsTheDerivativeOfTheGradient) {
  const Set set(uniform_space("two", 2, {"avg_pool_3x3", "skip_connect"}));
  const auto weights = set.net.named_parameters()["stem.1.weight"];
  const auto along = random({12}, 9);
  const auto gradient_at = [&](double distance) {
    {
      const at::NoGradGuard no_grad;
      weights.add_(along, distance);
    }
    return grad({set.loss()}, set.alphas());
  };
  const double e = 1e-7;
  const auto above = gradient_at(e), below = gradient_at(-2 * e);
  gradient_at(e);
  const TangentScope tangents({weights}, {along});
  const auto tangent = tangent_of(set.loss());
  const c10::AutoFwGradMode no_tangents(false);
  const auto product = grad({tangent}, set.alphas());
  for (size_t i = 0; i < 2; ++i) {
    const auto expected = (above[i] - below[i]) / (2 * e);
    EXPECT_LT((product[i] - expected).norm().item<double>(), 1e-5 * expected.norm().item<double>());
  }
}

TEST(Supernet, UnknownSpacesAndFewCellsAreRefused) {
  EXPECT_EQ(text_of<SettingsError>([] { make({.name = "search:dart"}); }),
            "space is 'dart', wanted darts, s1, s2, s3, s4 or nas-bench-201");
  EXPECT_EQ(text_of<SettingsError>([] { make(sizes(2)); }),
            "cells is 2, wanted 3 or more: of fewer, none keeps the image's size");
  EXPECT_EQ(text_of<SettingsError>([] { make({.name = "search:nas-bench-201", .cells = 4}); }),
            "cells is 4, wanted a multiple of 3, the rows of cells of NAS-Bench-201");
}

}  // namespace
}  // namespace tandem::models
