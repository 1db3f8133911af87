#pragma once
#include <optional>

#include "tandem/base/rows.h"
#include "tandem/comm/process_group.h"
#include "tandem/train/lazy_decay.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

enum class OptimizerKind { sgd, adamw };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.9;                              // sgd
  bool nesterov = true;                               // sgd
  double weight_decay = 5e-4;                         // sgd: added to the gradient; adamw: decoupled
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adamw
};

/// Updates parameters from their .grad with libtorch's fused kernels; the same numbers as torch.optim's SGD and AdamW.
///
/// State is made at construction: sgd one tensor a parameter (none without momentum), adamw two and a step count.
/// A parameter whose .grad is undefined is left alone; of one whose .grad is sparse, the rows that it has not are left
/// alone, or move as if their gradient were zero, see move_all_rows(). With sparse gradients AdamW counts all steps.
class Optimizer {
 public:
  /// Throws SettingsError: a number out of its range, Nesterov without momentum.
  Optimizer(std::vector<Parameter> parameters, const OptimizerOptions& options);
  ~Optimizer();

  void step(double learning_rate);

  /// The step of one parameter whose gradient comes in blocks of rows: call the result with each block once. The same
  /// numbers as step() gives. Several threads may call it at a time, with different rows. It must not be called after
  /// the next step of that parameter has begun.
  RowUpdate step_rows(size_t parameter, double learning_rate);

  /// From now on rows of this parameter that a step leaves out move as a dense SGD with no gradient there moves them,
  /// by momentum and weight decay, but only when they are wanted: prepare_rows() those that a step reads, before it.
  /// Costs 4 bytes a row. Throws SettingsError for adamw.
  void move_all_rows(size_t parameter);
  void check_late_moves() const;  // throws as move_all_rows() would
  void prepare_rows(const Rows& rows);

  /// The step for which rows were prepared is left out: no step() follows.
  void drop_step();

  /// All rows are what they would be without putting anything off: before reading a parameter as a whole.
  void settle();

  void zero_grad();  // to undefined, which frees or reuses the memory

  /// The state by name ("optimizer.momentum.<parameter>", ...), split as its parameter is. The tensors are the real
  /// ones.
  std::vector<Parameter> state() const;

 private:
  struct Lists {
    std::vector<Tensor> weights, gradients, first, second, steps;
  };
  void update(Lists& lists, double learning_rate) const;
  void step_some_rows(size_t parameter, const Rows& rows, const Tensor& gradient, double learning_rate);
  void step_dense(double learning_rate);

  std::vector<Parameter> parameters_;
  OptimizerOptions options_;
  std::vector<Tensor> first_, second_, steps_;
  std::optional<LazyDecay> lazy_;
};

/// The norm of all gradients together, over all ranks; when it is above `largest`, scales them down to it. Returns the
/// norm before. Collective (one message of 8 bytes when a parameter is split).
double clip_grad_norm(const std::vector<Parameter>& parameters, double largest, comm::ProcessGroup& group);

}  // namespace tandem::train
