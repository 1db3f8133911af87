#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/models/backbone.h"
#include "tests/support/text_of.h"

namespace tandem::models {
namespace {

constexpr const char* kConvolutions =
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|";
constexpr const char* kSkips = "|skip_connect~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|skip_connect~2|";

ModelOptions published(const char* cell) {
  return {.name = cell, .channels = 3, .size = 32, .embedding = 0, .cells = 15, .cell_channels = 16};
}

int64_t parameters_of(const Backbone& model, int64_t classes) {
  int64_t count = (model.dim() + 1) * classes;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

/// The table of the benchmark has 1.531546 and 0.073306 million.
TEST(Bench201, HasAsManyParametersAsPublished) {
  EXPECT_EQ(parameters_of(*make(published(kConvolutions)), 10), 1531546);
  EXPECT_EQ(parameters_of(*make(published(kSkips)), 10), 73306);
}

class Stated {
 public:
  explicit Stated(const Backbone& model) : weights_(model.named_parameters()) {}

  /// The network on a cell of which value 3 = pool(0) + 1x1(1) + 3x3(2), 1 = 3x3(0), 2 = 0 + nothing.
  Tensor features(const Tensor& images) const {
    auto x = norm(conv(images, "stem.0", 1, 1), "stem.1");
    x = residual(cell(x, "cells.0."), "cells.1.");
    x = residual(cell(x, "cells.2."), "cells.3.");
    return norm(cell(x, "cells.4."), "lastact.0").relu().mean({2, 3});
  }

 private:
  Tensor conv(const Tensor& x, const std::string& name, int64_t stride, int64_t padding) const {
    return at::conv2d(x, weights_[name + ".weight"], {}, stride, padding);
  }
  Tensor norm(const Tensor& x, const std::string& name) const {
    return at::batch_norm(x, weights_[name + ".weight"], weights_[name + ".bias"], {}, {}, true, 0.1, 1e-5, false);
  }
  Tensor block(const Tensor& x, const std::string& name, int64_t stride, int64_t padding) const {
    return norm(conv(x.relu(), name + ".op.1", stride, padding), name + ".op.2");
  }
  Tensor cell(const Tensor& x, const std::string& name) const {
    const auto one = block(x, name + "layers.0", 1, 1), two = x;
    return at::avg_pool2d(x, 3, 1, 1, false, false) + block(one, name + "layers.4", 1, 0) +
           block(two, name + "layers.5", 1, 1);
  }
  Tensor residual(const Tensor& x, const std::string& name) const {
    return conv(at::avg_pool2d(x, 2, 2), name + "downsample.1", 1, 0) +
           block(block(x, name + "conv_a", 2, 1), name + "conv_b", 1, 1);
  }

  torch::OrderedDict<std::string, Tensor> weights_;
};

TEST(Bench201, IsTheNetworkOfTheBenchmark) {
  ModelOptions options =
      published("|nor_conv_3x3~0|+|skip_connect~0|none~1|+|avg_pool_3x3~0|nor_conv_1x1~1|nor_conv_3x3~2|");
  options.cells = 3, options.cell_channels = 5, options.size = 12;
  const auto model = make(options);
  model->to(at::kDouble);
  const auto images = at::rand({3, 3, 12, 12}, at::kDouble);
  const auto wanted = Stated(*model).features(images), found = model->forward(images);
  EXPECT_EQ(found.sizes(), (std::vector<int64_t>{3, 20}));
  EXPECT_LT((found - wanted).abs().max().item<double>(), 1e-12);
  EXPECT_EQ(model->num_blocks(), 7);
}

TEST(Bench201, ARankCanHoldSomeOfItsBlocks) {
  auto options = published(kConvolutions);
  options.cells = 3, options.cell_channels = 4;
  const auto whole = make(options);
  memory::Flow flow = {at::rand({3, 3, 32, 32})};
  const auto wanted = memory::run(whole->chain(), flow)[0];
  for (int64_t block = 0; block < whole->num_blocks(); ++block) {
    options.blocks = {{block, block}};
    const auto part = make(options);
    ASSERT_EQ(part->chain().blocks.size(), 1U);
    flow = memory::run(part->chain(), flow);
  }
  EXPECT_TRUE(flow[0].equal(wanted));
  options.blocks = {{0, 0}};
  EXPECT_FALSE(make(options)->named_modules().contains("lastact"));
}

TEST(Bench201, SizesThatDoNotServe) {
  const auto fault = [](int64_t cells, int64_t size, Norm norm = Norm::batch) {
    auto options = published(kSkips);
    options.cells = cells, options.size = size, options.norm = norm;
    return test::text_of<SettingsError>([&] { make(options); });
  };
  EXPECT_EQ(fault(20, 32), "cells is 20, wanted a multiple of 3, the rows of cells of NAS-Bench-201");
  EXPECT_EQ(fault(3, 30),
            "size is 30 with a network of cells, wanted a multiple of 4, by which it divides the image's sides");
  EXPECT_EQ(fault(3, 32, Norm::abn_elu).substr(0, 33), "norm has an activation of its own");
}

}  // namespace
}  // namespace tandem::models
