#include "tandem/train/weights_hash.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/storage/checksum.h"
#include "tests/support/text_of.h"

namespace tandem::train {
namespace {

using parallel::Parameter;

Parameter rows_of(const std::string& name, const Tensor& whole, const std::vector<int64_t>& counts, int rank) {
  int64_t first = 0;
  for (int before = 0; before < rank; ++before) first += counts[before];
  return Parameter::split(name, whole.narrow(0, first, counts[rank]).clone(), {0, first, counts[rank], whole.size(0)});
}

/// The hash that rank 0 gets of `b`, split as `counts` says, and of a replicated `a` and a scalar `c`.
std::string hash_of_ranks(const Tensor& a, const Tensor& b, const std::vector<int64_t>& counts) {
  std::string hash;
  comm::run_ranks(static_cast<int>(counts.size()), [&](comm::ProcessGroup& group) {
    const auto own = weights_hash({rows_of("b", b, counts, group.rank()), Parameter::replicated("a", a + group.rank()),
                                   Parameter::replicated("c", at::scalar_tensor(7, at::kLong))},
                                  group);
    EXPECT_EQ(own.empty(), group.rank() != 0);
    if (group.rank() == 0) hash = own;
  });
  return hash;
}

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

TEST(WeightsHash, IsTheChecksumOfTheMergedTensorsSortedByName) {
  const auto a = at::arange(6, at::kFloat).reshape({2, 3});
  const auto b = at::arange(14, at::kDouble).reshape({7, 2, 1});
  const auto c = at::scalar_tensor(7, at::kLong);
  const auto text = "a F32 2,3\n" + bytes_of(a) + "b F64 7,2,1\n" + bytes_of(b) + "c I64 \n" + bytes_of(c);
  for (const auto& counts : std::vector<std::vector<int64_t>>{{7}, {4, 3}, {0, 7}, {3, 2, 2}, {1, 0, 5, 1}})
    EXPECT_EQ(hash_of_ranks(a, b, counts), storage::checksum_of(text)) << counts.size() << " ranks";
}

TEST(WeightsHash, RowsTravelInPieces) {
  const auto a = at::zeros({1}), b = at::arange(5'000'000, at::kFloat).reshape({5'000, 1'000});  // 20 MB
  const auto whole = hash_of_ranks(a, b, {5'000});
  EXPECT_EQ(hash_of_ranks(a, b, {4'900, 100}), whole);
  EXPECT_EQ(hash_of_ranks(a, b, {50, 4'950}), whole);
}

std::string hash_of(const std::string& name, const Tensor& tensor) {
  std::string hash;
  comm::run_ranks(
      1, [&](comm::ProcessGroup& group) { hash = weights_hash({Parameter::replicated(name, tensor)}, group); });
  return hash;
}

TEST(WeightsHash, EachBitNameTypeAndShapeCounts) {
  const auto zeros = at::zeros({2, 3});
  EXPECT_EQ(hash_of("w", zeros), hash_of("w", at::zeros({3, 2}).t()));  // as it is seen, not as it lies
  EXPECT_NE(hash_of("w", zeros), hash_of("w", -zeros));
  EXPECT_NE(hash_of("w", zeros), hash_of("v", zeros));
  EXPECT_NE(hash_of("w", zeros), hash_of("w", at::zeros({3, 2})));
  EXPECT_NE(hash_of("w", zeros), hash_of("w", at::zeros({2, 3}, at::kInt)));
}

TEST(WeightsHash, NamesATypeThatCannotBeStored) {
  comm::run_ranks(1, [](comm::ProcessGroup& group) {
    const auto text = test::text_of<c10::TypeError>(
        [&] { weights_hash({Parameter::replicated("q", at::empty({1}, at::kComplexHalf))}, group); });
    EXPECT_EQ(text, "tensor 'q' is of type ComplexHalf, wanted one that safetensors has");
  });
}

}  // namespace
}  // namespace tandem::train
