#pragma once
#include <functional>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::parallel {

/// Differentiates by tensors of one's choice, parameters or intermediate ones, and hands each gradient to callbacks
/// before it is kept: for code that does its own parallelism.
///
///   GradManager manager;
///   for (auto& weight : weights) manager.attach(weight, [&](const Tensor&, const Tensor& gradient) {
///     return comm::all_reduce(gradient, group);            // data parallelism
///   });
///   for (;;) {
///     manager.backward(loss_of(batch));                    // adds to weight.grad()
///     ...                                                  // step, zero_grad
///   }
///
/// A stage of a pipeline attaches its input, and goes on from the gradient that the next stage has sent:
///
///   const GradManager::Scope scope(manager);               // forgets x when it ends
///   const Tensor x = manager.attach(received);
///   manager.backward({stage(x)}, {gradient_from_next});
///   send(manager.grad(x));
///
/// Only attached tensors get gradients; other leaves keep theirs. Callbacks run when backward is over, on the calling
/// thread, in the order in which the tensors were attached: equal on all ranks that attach in the same order.
/// Source: MegEngine's GradManager.
class GradManager {
 public:
  /// Is given an attached tensor and its gradient of one backward; returns the gradient to keep. An undefined tensor:
  /// the one that it was given.
  using Callback = std::function<Tensor(const Tensor& attached, const Tensor& gradient)>;

  /// From now on backward differentiates by this tensor. A tensor without gradient becomes a leaf that requires one;
  /// attach it before it is used. Attaching a tensor again adds the callback. Returns the tensor. Throws c10::TypeError
  /// unless its values are floating or complex.
  Tensor attach(Tensor tensor, Callback callback = nullptr);

  /// Differentiates the sum of (y · dy) over all pairs, and frees the graph. `dys`: of the shapes of `ys`, or empty,
  /// where each y has one element. Adds the gradients to .grad of leaves; grad() has them for all.
  ///
  /// A tensor on which the ys do not depend keeps its gradient as it is; its callbacks, if any, are given zeros, so
  /// that ranks whose graphs differ make the same collective calls. Without ys this holds for all. Throws
  /// c10::ValueError (another number of dys, a y that requires no gradient).
  void backward(const std::vector<Tensor>& ys, const std::vector<Tensor>& dys = {});
  void backward(const Tensor& y) { backward(std::vector{y}); }
  void backward(const Tensor& y, const Tensor& dy) { backward(std::vector{y}, {dy}); }

  /// The gradient of an attached tensor: of a leaf its .grad; of another tensor the sum over all backwards since it was
  /// attached; undefined if there was none. Throws c10::ValueError if the tensor is not attached.
  Tensor grad(const Tensor& attached) const;

  /// Forgets the tensors that are no leaves, with their gradients; what they alone keep of a graph is freed.
  void release();

  /// Forgets at its end what was attached while it lived.
  class Scope {
   public:
    explicit Scope(GradManager& manager) : manager_(manager), first_(manager.next_) {}
    ~Scope() { manager_.forget_from(first_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GradManager& manager_;
    uint64_t first_;
  };

 private:
  struct Attached {
    uint64_t number;  // counts all that were ever attached
    Tensor tensor;
    std::vector<Callback> callbacks = {};
    Tensor gradient = {};  // of a tensor that is no leaf

    void add(Tensor gradient_of_backward);
  };

  /// The place of the tensor; attached_.size(): it is not attached.
  size_t place_of(const Tensor& tensor) const;
  void forget_from(uint64_t number);

  std::vector<Attached> attached_;
  uint64_t next_ = 0;
};

}  // namespace tandem::parallel
