#include "tandem/models/cells/search_alphas.h"

#include <ATen/ATen.h>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"

namespace tandem::models {
namespace {

constexpr double kDeviation = 1e-3;

}  // namespace

SearchAlphas::SearchAlphas(const Space& space, const SearchMethod& method)
    : Layer("Alphas"), method_(method), inputs_(space.inputs()) {
  for (const auto& cell : space.cells) {
    const auto kind = std::string(cell.kind);
    kinds_.push_back(kind);
    operations_.push_back(register_parameter(kind, at::empty({space.edges(), cell.operations()})));
    edges_.push_back(method.weighs_edges ? register_parameter(kind + "_edges", at::empty({space.edges()})) : Tensor());
  }
  if (method.keeps_progress) progress_ = register_buffer("progress", at::zeros({}));
}

/// In training that of the context; otherwise that of the last forward in training.
double SearchAlphas::progress() const {
  const double now = current_context().progress;
  if (!progress_.defined()) return now;
  const at::NoGradGuard no_grad;
  if (is_training()) progress_.fill_(now);
  return progress_.item<double>();
}

memory::Flow SearchAlphas::weights() const {
  memory::Flow weights;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    weights.push_back(method_.weights({.operations = operations_[i],
                                       .edges = edges_[i],
                                       .inputs = inputs_,
                                       .stream = stream_of("drawn " + kinds_[i]),
                                       .progress = progress(),
                                       .is_training = is_training()}));
  }
  return weights;
}

void SearchAlphas::initialize(uint64_t seed, const std::string& name) {
  const at::NoGradGuard no_grad;
  for (const auto& entry : named_parameters(/*recurse=*/false)) {
    fill_normal_(entry.value(), kDeviation, seed, stream_of(name + "." + entry.key()));
  }
}

}  // namespace tandem::models
