#include "tandem/train/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

namespace tandem::train {
namespace {

at::ScalarType type_of_product() {
  const auto x = at::ones({2, 2});
  return x.mm(x).scalar_type();
}

TEST(Autocast, HoldsForItsScope) {
  EXPECT_EQ(type_of_product(), at::kFloat);
  {
    const AutocastScope scope(true);
    EXPECT_EQ(type_of_product(), at::kBFloat16);
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
  const AutocastScope off(false);
  EXPECT_EQ(type_of_product(), at::kFloat);
}

TEST(Autocast, LeavesTheScopeAroundItAsItWas) {
  const AutocastScope outer(true);
  { const AutocastScope inner(true); }
  EXPECT_EQ(type_of_product(), at::kBFloat16);
}

TEST(Autocast, LeavesACallersOwnSettingsAsTheyWere) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  {
    const AutocastScope scope(true);
    EXPECT_EQ(type_of_product(), at::kBFloat16);
  }
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
}

}  // namespace
}  // namespace tandem::train
