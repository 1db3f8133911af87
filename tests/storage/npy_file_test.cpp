#include "tandem/storage/npy_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

using test::text_of;

/// In two pieces.
TensorSource source_of(const Tensor& rows, std::vector<int64_t> shape) {
  return {"rows", rows.scalar_type(), std::move(shape), [rows](const auto& take) {
            take(rows.slice(0, 0, 1));
            take(rows.slice(0, 1));
          }};
}

TEST(NpyFile, HasNumPysHeaderAndTheRows) {
  const test::TemporaryFolder folder;
  const auto rows = at::arange(6, at::kFloat).view({3, 2});
  write_npy(folder / "a.npy", source_of(rows, {3, 2}));
  const auto text = test::slurp(folder / "a.npy");
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,2,), }";
  EXPECT_EQ(text.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(text.substr(10, header.size()), header);
  EXPECT_EQ(text.size(), 128u + 24);
  EXPECT_EQ(text[127], '\n');
  EXPECT_EQ(static_cast<unsigned char>(text[8]), 118);
  EXPECT_EQ(text.substr(128), std::string(static_cast<const char*>(rows.const_data_ptr()), 24));
}

TEST(NpyFile, WrongPiecesLeaveNoFile) {
  const test::TemporaryFolder folder;
  const auto rows = at::zeros({3, 2});
  EXPECT_EQ(text_of<c10::ValueError>([&] {
              write_npy(folder / "a.npy", source_of(rows, {4, 2}));
            }),
            "npy: the pieces of 'rows' lack 2 numbers, wanted its shape");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.npy"));
  EXPECT_THROW(write_npy(folder / "a.npy", source_of(rows.to(at::kComplexFloat), {3, 2})), c10::TypeError);
}

}  // namespace
}  // namespace tandem::storage
