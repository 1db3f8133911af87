#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/base/rng.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

using torch::autograd::grad;

Tensor random(const std::vector<int64_t>& shape, uint64_t stream, at::ScalarType type) {
  const auto values = at::empty(shape);
  fill_normal_(values, 1.0, 29, stream);
  return values.to(type);
}

/// Output, gradients by input and scale, and those of a function of these.
std::vector<Tensor> run(Norm norm, bool is_folded, at::ScalarType type) {
  auto layer = make_normalization(norm, 16, memory::activation_of("relu"), /*is_affine=*/false);
  layer->initialize(1, "norm");
  layer->normalize_by(2);
  layer->to(type);
  const auto input = random({5, 16, 4, 3}, 1, type).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const auto scale = at::scalar_tensor(0.3, type).requires_grad_();
  const auto output = is_folded ? layer->scaled(input, scale) : layer->forward(input.clone()) * scale;
  const auto first =
      grad({output}, {input, scale}, {random({5, 16, 4, 3}, 2, type)}, std::nullopt, /*create_graph=*/true);
  const auto second = grad({(first[0] * random({5, 16, 4, 3}, 3, type)).sum() + first[1]}, {input, scale});
  std::vector<Tensor> all = {output.detach(), first[0].detach(), first[1].detach(), second[0], second[1]};
  for (const auto& buffer : layer->buffers()) all.push_back(buffer);
  return all;
}

TEST(ScaledNorm, IsTheNormTimesTheScale) {
  for (const auto norm : {Norm::batch, Norm::group, Norm::none, Norm::ghost}) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      const auto folded = run(norm, true, type), apart = run(norm, false, at::kDouble);
      ASSERT_EQ(folded.size(), apart.size());
      const double tolerance = type == at::kDouble ? 1e-11 : 2e-4;
      for (size_t i = 0; i < folded.size(); ++i) {
        const auto expected = apart[i].to(at::kDouble);
        EXPECT_LE((folded[i].to(at::kDouble) - expected).abs().max().item<double>(),
                  tolerance * std::max(1.0, expected.abs().max().item<double>()))
            << "result " << i << " of norm " << static_cast<int>(norm);
      }
    }
  }
}

TEST(ScaledNorm, AWeightOfItsOwnStays) {
  const auto layer = make_normalization(Norm::batch, 16);
  layer->initialize(1, "norm");
  const auto input = random({5, 16, 4, 3}, 1, at::kFloat);
  const auto scale = at::scalar_tensor(2.0, at::kFloat);
  EXPECT_TRUE(layer->scaled(input, scale).allclose(layer->forward(input) * 2));
}

}  // namespace
}  // namespace tandem::models
