#pragma once
#include "tandem/layers/division.h"
#include "tandem/layers/layer.h"

/// Tables of vectors, [rows, width], of which some are looked up; drawn as torch.nn.Embedding draws, normal of
/// deviation 1. Indices are int64 and the same on all ranks of the group.
namespace tandem::layers {

/// Divided by rows: a rank looks up those that it has, and zeros for the others; the sum over the ranks is the result.
/// Source: Shoeybi et al. 2019, Megatron-LM (arXiv:1909.08053), section 3. Wire: all_reduce of the result.
class RowEmbedding : public Layer {
 public:
  RowEmbedding(const Division& rows, int64_t width);

  /// [...] to [..., width], invariant. Throws c10::IndexError for an index that is no row. Collective.
  Tensor forward(const Tensor& indices) const;
  void initialize(uint64_t seed, const std::string& name) override;
  std::vector<Part> parts() const override { return {{"weight", "weight", rows_.split(0)}}; }

 private:
  Division rows_;
  Tensor weight_;
};

/// Divided by columns: a rank looks up its part of each vector. Wire: with `gathers` all_gather of the result.
class ColumnEmbedding : public Layer {
 public:
  /// With `gathers` the result is invariant, [..., width]; otherwise varying, [..., width.count()].
  ColumnEmbedding(int64_t rows, const Division& width, bool gathers = true);

  /// Throws as RowEmbedding. Collective.
  Tensor forward(const Tensor& indices) const;
  void initialize(uint64_t seed, const std::string& name) override;
  std::vector<Part> parts() const override { return {{"weight", "weight", width_.split(1)}}; }

 private:
  Division width_;
  bool gathers_;
  Tensor weight_;
};

}  // namespace tandem::layers
