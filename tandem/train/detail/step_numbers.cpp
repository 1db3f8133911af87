#include "tandem/train/detail/step_numbers.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tandem::train::detail {
namespace {

constexpr int64_t kPiece = 1 << 16;  // numbers

/// On CPUs in pieces: libtorch's norm in another type would copy the whole tensor.
int64_t piece_of(const Tensor& tensor) { return tensor.is_cpu() ? std::min(kPiece, tensor.numel()) : tensor.numel(); }

}  // namespace

Tensor StepNumbers::add(int64_t count) {
  const auto options = at::TensorOptions(at::kDouble).device(device_);
  count_ += static_cast<size_t>(count);
  if (!device_.is_cpu()) return added_.emplace_back(at::zeros({count}, options));
  memory_.push_back(std::make_unique<double[]>(static_cast<size_t>(count)));
  return added_.emplace_back(at::from_blob(memory_.back().get(), {count}, options));
}

const std::vector<double>& StepNumbers::read() {
  if (read_.size() == count_) return read_;
  read_.clear();
  const auto append = [&](const Tensor& numbers) {
    const auto* first = numbers.const_data_ptr<double>();
    read_.insert(read_.end(), first, first + numbers.numel());
  };
  if (!device_.is_cpu()) {
    append(at::cat(added_).cpu());
  } else {
    for (const auto& numbers : added_) append(numbers);
  }
  return read_;
}

c10::Device device_of(const std::vector<Parameter>& parameters) {
  return parameters.empty() ? c10::Device(c10::DeviceType::CPU) : parameters.front().tensor.device();
}

void for_each_piece(const Tensor& tensor, const std::function<void(const Tensor& piece)>& work) {
  const auto flat = tensor.reshape({-1});
  const int64_t piece = piece_of(tensor);
  for (int64_t begin = 0; begin < flat.numel(); begin += piece) {
    work(flat.narrow(0, begin, std::min(piece, flat.numel() - begin)));
  }
}

void add_square(const Tensor& tensor, const Tensor& own, const Tensor& sum) {
  own.zero_();
  for_each_piece(tensor, [&](const Tensor& piece) {
    const auto numbers = piece.to(at::kDouble);
    own.add_(at::dot(numbers, numbers));
  });
  sum.add_(own);
}

int64_t square_bytes(const Tensor& tensor) {
  const int64_t flat = tensor.is_contiguous() ? 0 : static_cast<int64_t>(tensor.nbytes());
  const int64_t piece = tensor.scalar_type() == at::kDouble ? 0 : piece_of(tensor);
  return flat + (piece + 1) * int64_t{sizeof(double)};
}

}  // namespace tandem::train::detail
