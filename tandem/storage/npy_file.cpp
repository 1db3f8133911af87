#include "tandem/storage/npy_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "tandem/base/quote.h"

namespace tandem::storage {
namespace {

constexpr size_t kAligned = 64;  // where the numbers begin

/// Little endian.
constexpr std::array<std::pair<at::ScalarType, std::string_view>, 6> kNumPyTypes = {{{at::kFloat, "<f4"},
                                                                                     {at::kDouble, "<f8"},
                                                                                     {at::kHalf, "<f2"},
                                                                                     {at::kLong, "<i8"},
                                                                                     {at::kInt, "<i4"},
                                                                                     {at::kByte, "|u1"}}};

std::string_view type_name(at::ScalarType type) {
  const auto* found = std::ranges::find(kNumPyTypes, type, &std::pair<at::ScalarType, std::string_view>::first);
  TORCH_CHECK_TYPE(found != kNumPyTypes.end(), "npy: the tensor is of type ", type, ", wanted one that NumPy has");
  return found->second;
}

std::string header_of(const TensorSource& source) {
  std::string text = "{'descr': '" + std::string(type_name(source.type)) + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : source.shape) text += std::to_string(size) + ",";
  text += "), }";
  const std::string magic("\x93NUMPY\x01\x00", 8);
  const size_t before = magic.size() + 2;
  const size_t end = (before + text.size() + 1 + kAligned - 1) / kAligned * kAligned;
  text.resize(end - before - 1, ' ');
  text += '\n';
  TORCH_CHECK_VALUE(text.size() <= 0xFFFF, "npy: the tensor has ", source.shape.size(), " dims, wanted fewer");
  return magic + static_cast<char>(text.size() & 0xFF) + static_cast<char>(text.size() >> 8) + text;
}

}  // namespace

void write_npy(const std::filesystem::path& path, const TensorSource& source) {
  const auto header = header_of(source);
  OutputFile file(path);
  file.append(std::as_bytes(std::span(header)));
  int64_t left = 1;
  for (const int64_t size : source.shape) left *= size;
  source.give([&](const Tensor& piece) {
    TORCH_CHECK_VALUE(piece.scalar_type() == source.type, "npy: a piece is of type ", piece.scalar_type(), ", wanted ",
                      source.type);
    const auto own = piece.detach().to(at::kCPU).contiguous();
    left -= own.numel();
    file.append({static_cast<const std::byte*>(own.const_data_ptr()), own.nbytes()});
  });
  TORCH_CHECK_VALUE(left == 0, "npy: the pieces of ", quote(source.name), " lack ", left, " numbers, wanted its shape");
  file.finish();
}

}  // namespace tandem::storage
