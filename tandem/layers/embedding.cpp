#include "tandem/layers/embedding.h"

#include <ATen/ATen.h>

#include "tandem/comm/region.h"
#include "tandem/layers/detail/draw.h"
#include "tandem/layers/term.h"

namespace tandem::layers {
namespace {

void check_indices(const Tensor& indices, int64_t rows) {
  TORCH_CHECK_VALUE(indices.scalar_type() == at::kLong, "embedding: indices are ", indices.scalar_type(),
                    ", wanted int64");
  if (indices.numel() == 0) return;
  const auto [least, most] = at::aminmax(indices);
  TORCH_CHECK_INDEX(least.item<int64_t>() >= 0 && most.item<int64_t>() < rows, "embedding: indices are ",
                    least.item<int64_t>(), "..", most.item<int64_t>(), ", wanted 0..", rows - 1);
}

}  // namespace

RowEmbedding::RowEmbedding(const Division& rows, int64_t width) : Layer("Embedding"), rows_(rows) {
  weight_ = register_parameter("weight", at::empty({rows.count(), width}));
}

Tensor RowEmbedding::forward(const Tensor& indices) const {
  check_indices(indices, rows_.total());
  const auto flat = indices.reshape({-1});
  const auto places = flat.ge(rows_.first()).logical_and(flat.lt(rows_.first() + rows_.count())).nonzero().view({-1});
  const auto own = at::embedding(weight_, flat.index_select(0, places) - rows_.first());
  const auto all = at::zeros({flat.numel(), weight_.size(1)}, weight_.options()).index_copy(0, places, own);
  auto sizes = indices.sizes().vec();
  sizes.push_back(weight_.size(1));
  return comm::reduce_from_region(term_of(all, rows_.group()), rows_.group()).view(sizes);
}

void RowEmbedding::initialize(uint64_t seed, const std::string& name) {
  detail::draw_normal(weight_, rows_.split(0), 1, seed, name + ".weight");
}

ColumnEmbedding::ColumnEmbedding(int64_t rows, const Division& width, bool gathers)
    : Layer("Embedding"), width_(width), gathers_(gathers) {
  weight_ = register_parameter("weight", at::empty({rows, width.count()}));
}

Tensor ColumnEmbedding::forward(const Tensor& indices) const {
  check_indices(indices, weight_.size(0));
  const auto own = at::embedding(weight_, indices);
  return gathers_ ? comm::gather_from_region(own, width_.group(), -1, width_.counts()) : own;
}

void ColumnEmbedding::initialize(uint64_t seed, const std::string& name) {
  detail::draw_normal(weight_, width_.split(1), 1, seed, name + ".weight");
}

}  // namespace tandem::layers
