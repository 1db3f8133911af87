#include "tandem/parallel/scatter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

using test::text_of;

std::vector<c10::Device> cpus(size_t count) { return {count, c10::DeviceType::CPU}; }

TEST(Nested, GivesItsTensorsDepthFirstAndTakesOthers) {
  const auto a = at::ones({1}), b = at::zeros({2}), c = at::ones({3});
  const Nested value(Nested::Map{{"z", a}, {"boxes", Nested::List{b, Nested(Nested::List{c})}}});
  const auto tensors = value.tensors();
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_TRUE(tensors[0].is_same(b) && tensors[1].is_same(c) && tensors[2].is_same(a));
  const auto other = value.with(std::vector{c, a, b});
  EXPECT_TRUE(other["boxes"][1][0].tensor().is_same(a));
  EXPECT_TRUE(other["z"].tensor().is_same(b));
  EXPECT_EQ(text_of([&] { value["y"]; }), "nested value: the map has no 'y'");
  EXPECT_EQ(text_of([&] { value[0]; }), "nested value: it is a map, wanted a list");
  EXPECT_EQ(text_of([&] { value["boxes"]["z"]; }), "nested value: it is a list, wanted a map");
  EXPECT_EQ(text_of([&] { value["boxes"][2]; }), "nested value: place is 2 in a list of 2");
  EXPECT_EQ(text_of([&] { value.tensor(); }), "nested value: it is a map, wanted a tensor");
  EXPECT_EQ(text_of([&] { value.with(std::vector{a}); }), "nested value: 1 tensors for a form of 3");
}

TEST(Scatter, ChunksAreThoseOfTorch) {
  for (int64_t size = 1; size < 14; ++size) {
    for (int parts = 1; parts < 7; ++parts) {
      std::vector<int64_t> expected;
      for (const auto& chunk : at::ones({size}).chunk(parts)) expected.push_back(chunk.size(0));
      EXPECT_EQ(chunk_sizes(size, parts), expected) << size << " over " << parts;
    }
  }
  EXPECT_EQ(chunk_sizes(0, 3), std::vector<int64_t>{0});
}

TEST(Scatter, CutsAlongAnyDimWithoutCopies) {
  const auto input = at::arange(14).reshape({2, 7});
  const auto parts = scatter(input, cpus(3), {.dim = 1});
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_TRUE(parts[2].tensor().equal(input.narrow(1, 6, 1)));
  EXPECT_TRUE(parts[1].tensor().is_alias_of(input));
  EXPECT_TRUE(gather(parts, c10::DeviceType::CPU, {.dim = 1}).tensor().equal(input));
  EXPECT_EQ(scatter(input, cpus(4)).size(), 2U) << "two rows leave two devices out";
  EXPECT_EQ(scatter(at::ones({0, 3}), cpus(2)).size(), 1U);
}

TEST(Scatter, TakesGivenSizesAndNestedInputs) {
  const auto images = at::arange(10.0), scale = at::ones({});
  const Nested batch(Nested::Map{{"images", images}, {"scale", scale}, {"boxes", Nested::List{images * 2}}});
  const auto parts = scatter(batch, cpus(3), {.sizes = {1, 0, 9}});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_TRUE(parts[1]["boxes"][0].tensor().equal(images.slice(0, 1) * 2));
  EXPECT_TRUE(parts[0]["scale"].tensor().is_same(scale));
  const auto whole = gather(parts, c10::DeviceType::CPU);
  EXPECT_TRUE(whole["images"].tensor().equal(images));
  EXPECT_TRUE(whole["scale"].tensor().equal(at::ones({2}))) << "a scalar of each part";
}

TEST(Scatter, GradientsReachTheWholeInput) {
  const auto input = at::arange(5, at::kDouble).requires_grad_();
  const auto parts = scatter(input, cpus(2));
  gather(parts, c10::DeviceType::CPU).tensor().square().sum().backward();
  EXPECT_TRUE(input.grad().equal(2 * input.detach()));
}

TEST(Scatter, MeanOfScalarsIsWeightedWithTheSizes) {
  const auto rows = at::arange(7, at::kDouble).square();
  std::vector<Nested> means;
  for (const auto& part : scatter(rows, cpus(3))) means.emplace_back(part.tensor().mean());
  const auto mean = gather(means, c10::DeviceType::CPU, {.scalars = Scalars::mean, .sizes = {3, 3, 1}}).tensor();
  EXPECT_EQ(mean.dim(), 0);
  EXPECT_TRUE(mean.allclose(rows.mean(), 1e-15));
  EXPECT_EQ(gather(means, c10::DeviceType::CPU).tensor().size(0), 3);
}

TEST(Scatter, RefusesWhatDoesNotFit) {
  const Nested uneven(Nested::List{at::ones({4}), at::ones({5})});
  EXPECT_EQ(text_of<c10::ValueError>([&] { scatter(uneven, cpus(2)); }),
            "scatter: a tensor has size 5 along dim 0, and one before it 4, wanted equal sizes");
  EXPECT_EQ(text_of<c10::ValueError>([] { scatter(at::ones({}), cpus(2)); }),
            "scatter: the input has no tensor with dims, wanted one to cut");
  EXPECT_EQ(text_of<c10::ValueError>([] { scatter(at::ones({4}), cpus(2), {.sizes = {4}}); }),
            "scatter: there are 1 sizes, wanted one for each of 2 devices");
  EXPECT_EQ(text_of<c10::ValueError>([] {
              scatter(at::ones({4}), cpus(2), {.sizes = {1, 2}});
            }),
            "scatter: the sizes have the sum 3, wanted 4, the size of the input along dim 0, and none negative");
  EXPECT_EQ(text_of<c10::ValueError>([] { gather({}, c10::DeviceType::CPU); }),
            "gather: there is no value, wanted one or more");
  const std::vector<Nested> forms = {at::ones({1}), Nested(Nested::List{at::ones({1}), at::ones({1})})};
  EXPECT_EQ(text_of<c10::ValueError>([&] { gather(forms, c10::DeviceType::CPU); }),
            "gather: a replica gives 2 tensors, and the first 1, wanted the same form");
  const std::vector<Nested> losses = {at::ones({}), at::ones({})};
  EXPECT_EQ(text_of<c10::ValueError>([&] { gather(losses, c10::DeviceType::CPU, {.scalars = Scalars::mean}); }),
            "gather: there are 0 sizes for a mean of 2 parts, wanted one each");
  EXPECT_EQ(text_of<c10::ValueError>([] { chunk_sizes(3, 0); }), "chunks: number of parts is 0, wanted 1 or more");
}

}  // namespace
}  // namespace tandem::parallel
