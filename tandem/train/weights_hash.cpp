#include "tandem/train/weights_hash.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "tandem/base/context.h"
#include "tandem/base/quote.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/storage/checksum.h"
#include "tandem/storage/safetensors.h"

namespace tandem::train {
namespace {

constexpr int64_t kPieceBytes = 16 << 20;

void add(storage::Checksum& checksum, const Tensor& tensor) {
  const auto whole = tensor.cpu().contiguous();
  checksum.update({static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()});
}

std::string title_of(const parallel::Parameter& parameter) {
  const auto type = storage::safetensors_dtype(parameter.tensor.scalar_type());
  TORCH_CHECK_TYPE(!type.empty(), "tensor ", quote(parameter.name), " is of type ", parameter.tensor.scalar_type(),
                   ", wanted one that safetensors has");
  auto sizes = parameter.tensor.sizes().vec();
  if (parameter.rows) sizes.at(0) = parameter.rows->total;
  std::string title = parameter.name + ' ' + std::string(type) + ' ';
  for (size_t dim = 0; dim < sizes.size(); ++dim) title += (dim == 0 ? "" : ",") + std::to_string(sizes[dim]);
  return title + '\n';
}

std::vector<int64_t> counts_of_ranks(const parallel::RowRange& rows, comm::ProcessGroup& group) {
  const auto counts = comm::gather_numbers(rows.count, group);
  const auto first = std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
  const auto total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  TORCH_INTERNAL_ASSERT(rows.first == first, "this rank's rows begin at ", rows.first, ", wanted ", first);
  TORCH_INTERNAL_ASSERT(rows.total == total, "all ranks hold ", total, " rows, wanted ", rows.total);
  return counts;
}

/// Every rank takes part in every piece, so that no rank waits longer than for one piece.
void add_rows(storage::Checksum& checksum, const parallel::Parameter& parameter, comm::ProcessGroup& group) {
  const auto counts = counts_of_ranks(*parameter.rows, group);
  const int64_t row_bytes = c10::multiply_integers(parameter.tensor.sizes().slice(1)) * parameter.tensor.itemsize();
  const auto step = std::max<int64_t>(kPieceBytes / std::max<int64_t>(row_bytes, 1), 1);
  for (int owner = 0; owner < group.size(); ++owner) {
    for (int64_t first = 0; first < counts[owner]; first += step) {
      std::vector<int64_t> sizes(group.size(), 0);
      sizes[owner] = std::min(step, counts[owner] - first);
      const auto own = parameter.tensor.narrow(0, group.rank() == owner ? first : 0, sizes[group.rank()]);
      const auto piece = comm::gather(own.contiguous(), 0, group, 0, sizes);
      if (group.rank() == 0) add(checksum, piece);
    }
  }
}

}  // namespace

std::string weights_hash(std::vector<parallel::Parameter> tensors, comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  std::ranges::sort(tensors, {}, &parallel::Parameter::name);
  storage::Checksum checksum;
  for (const auto& parameter : tensors) {
    const auto title = title_of(parameter);
    checksum.update(std::as_bytes(std::span(title)));
    if (parameter.rows) {
      add_rows(checksum, parameter, group);
    } else if (group.rank() == 0) {
      add(checksum, parameter.tensor);
    }
  }
  return group.rank() == 0 ? checksum.hex() : "";
}

}  // namespace tandem::train
