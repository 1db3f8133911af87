#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "tandem/comm/process_group.h"
#include "tandem/data/dataset.h"
#include "tandem/parallel/gradient_total.h"
#include "tandem/train/micro_batches.h"
#include "tandem/train/task.h"

namespace tandem::search {

/// How the product of the second derivatives with a vector is worked out.
enum class Product : uint8_t {
  exact,        // the gradient of the loss's derivative along v, which travels forward (base/tangent.h)
  differences,  // (gradient at w + e v - gradient at w - e v) / 2 e: wrong at the kinks of ReLU
  multiplied    // the same times e in place of divided by it, as pt.darts has it: for comparisons
};

struct ArchitectOptions {
  int order = 2;  // 1: the gradient at the weights as they are
  Product product = Product::exact;
  double radius = 0.01;    // Product::differences: e = radius / |v|
  int64_t accumulate = 1;  // micro-batches into which a batch is cut
  int64_t shards = 0;      // as SupervisedStepOptions::shards: the same bits for every number of ranks that divides it
};

/// The step of SGD that an Architect makes for a moment: w' = w - rate (momentum * velocity + g + decay * w), of
/// Nesterov's kind w' = w - rate (momentum * v' + d), d = g + decay * w, v' = momentum * velocity + d.
struct VirtualStep {
  double rate = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  std::vector<Tensor> velocity = {};  // one a weight; empty: zeros
};

/// The gradient of the alphas by which DARTS moves them: that of the validation loss after a step on training images,
///
///   d/da L_val(w'(a), a)  =  dL_val/da (w') - rate * d/da [ dL_train/dw (w, a) . v ],    v = dL_val/dw' (w')
///
///   pass                      sum over the ranks              memory besides activations
///   g = dL_train/dw at w      g, before the step to w'        g
///   w ──▶ w' in place                                         a copy of w
///   L_val at w'               (v, dL_val/da, the loss)        v
///   w' ──▶ w, bit for bit
///   product at w with v       the product                     with differences a copy of w
///
/// so a step sends 2 |w| + 2 |a| + 1 numbers; with order 1, which is dL_val/da at w, |a| + 1. There is no second
/// network. Running statistics of batch norms keep their bits (BatchStatistics::hold). Losses are means over the whole
/// batch, so that on several ranks, however uneven their parts, the gradient is that of one device, unless norms take
/// statistics of a rank's images.
///
/// The alphas are the parameters of the task whose names begin with "alphas."; they require no gradient between two
/// calls, so that a step which trains the weights leaves them as they are. The exact product wants a task whose
/// operations have tangents that can be differentiated: the loss differentiable_cross_entropy() (base/tangent.h) has.
/// Source: Liu, Simonyan, Yang 2019, DARTS (arXiv:1806.09055), section 2.3.
class Architect {
 public:
  /// `data`: the ranks that share a batch, each of which holds the whole task. Both must outlive this object. Not
  /// collective. Throws SettingsError: order other than 1 and 2, a radius that is not above 0; c10::ValueError: a task
  /// without alphas, or of which a rank holds a part.
  Architect(train::Task& task, const ArchitectOptions& options, comm::ProcessGroup& data);

  /// Sets .grad of the alphas, the same bits on all ranks, and returns the validation loss of the whole batch. The
  /// batches: this rank's parts, as a loader with these shards gives them; `training` is not read with order 1.
  /// Collective.
  double run(const data::Batch& training, const data::Batch& validation, const VirtualStep& step);

  /// The product of the Hessian of the validation loss in the alphas, at the weights as they are, with `vector`: one
  /// tensor a kind of cell, as is the result. The same bits on all ranks. Collective.
  std::vector<Tensor> hessian_product(const data::Batch& validation, const std::vector<Tensor>& vector);

  const ArchitectOptions& options() const { return options_; }

  /// Those of the task.
  const std::vector<train::Parameter>& alphas() const { return alphas_; }

  /// The other parameters that are trained, in the order of VirtualStep::velocity.
  const std::vector<train::Parameter>& weights() const { return weights_; }

 private:
  /// What is differentiated of a part of a batch, and this rank's term of the loss of the whole batch.
  struct Loss {
    Tensor objective, term;
  };
  using Gradients = std::function<std::vector<Tensor>(const Loss& loss)>;

  std::vector<train::BatchPart> parts_of(const data::Batch& batch) const;
  Loss loss_of(const train::BatchPart& part);
  void add_parts(const data::Batch& batch, parallel::GradientTotal& total, const Gradients& gradients);
  parallel::GradientTotal total_of(const std::vector<Tensor>& tensors);
  std::vector<Tensor> derivative_along(const data::Batch& batch, const std::vector<Tensor>& tensors,
                                       const std::vector<Tensor>& vector);
  std::vector<Tensor> differences(const data::Batch& training, const std::vector<Tensor>& vector);

  train::Task& task_;
  ArchitectOptions options_;
  comm::ProcessGroup& data_;
  std::vector<train::Parameter> weights_, alphas_;
  std::vector<Tensor> weight_tensors_, alpha_tensors_;
};

}  // namespace tandem::search
