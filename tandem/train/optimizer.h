#pragma once
#include <functional>
#include <optional>
#include <string_view>

#include "tandem/base/rows.h"
#include "tandem/comm/process_group.h"
#include "tandem/train/detail/lazy_decay.h"
#include "tandem/train/parameter.h"

namespace tandem::train {

enum class OptimizerKind { sgd, adam, adamw };

/// Numbers that hold for some of an optimizer's parameters, in place of those of OptimizerOptions.
struct ParameterGroup {
  std::function<bool(const Parameter& parameter)> takes;
  std::optional<double> weight_decay = {};
  double rate = 1;  // factor of the learning rate
};

/// Norms' weights and all biases, which are vectors, without weight decay. Source: Goyal et al. 2017, Accurate, Large
/// Minibatch SGD (arXiv:1706.02677), section 5.1; He et al. 2018, Bag of Tricks (arXiv:1812.01187), section 3.1.
ParameterGroup vectors_without_decay();

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.9;                              // sgd
  bool nesterov = true;                               // sgd
  double weight_decay = 5e-4;                         // sgd, adam: added to the gradient; adamw: decoupled
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adam, adamw
  std::vector<ParameterGroup> groups = {};            // the first that takes a parameter holds for it
};

/// SGD, Adam and AdamW on libtorch's fused kernels. The numbers equal torch.optim's. On CPUs the bits of a number do
/// not depend on how its tensor has been cut.
///
/// The constructor allocates the state: for SGD one tensor per parameter (none without momentum), for Adam and AdamW
/// two and a step count. A parameter without a gradient is not updated. If .grad is sparse, rows without a gradient are
/// not updated, unless move_all_rows() was called for that parameter; the step counts rise all the same. A row that a
/// sparse .grad names several times gets the sum.
///
/// To leave frozen parameters out, with their state, pass trained_of() (parallel/parameter.h).
class Optimizer {
 public:
  /// Throws SettingsError: a number out of its range, also of a group; Nesterov without momentum. Throws
  /// c10::ValueError if a tensor is listed twice.
  Optimizer(std::vector<Parameter> parameters, const OptimizerOptions& options);
  ~Optimizer();

  void step(double learning_rate);

  /// Index of the parameter of this name, for the functions below. There must be one.
  size_t place_of(std::string_view name) const;

  /// Returns a function that updates one parameter block by block: call it once for each block of rows, with the
  /// block's gradient. The result equals that of step(). Threads may call it at the same time for different rows. It
  /// must not be called after the parameter's next step has begun.
  RowUpdate step_rows(size_t parameter, double learning_rate);

  /// Bytes that step() needs for a moment if each .grad is dense; if the parameter's is sparse and names so many rows.
  int64_t dense_bytes() const;
  int64_t row_bytes(size_t parameter, int64_t rows) const;

  /// From now on, rows of this parameter that a step skips get the momentum and weight decay that dense SGD would give
  /// them, but late: when they are next read. Call prepare_rows() with the rows that a step reads, before the step.
  /// Memory: 4 bytes per row. Throws SettingsError for Adam and AdamW.
  void move_all_rows(size_t parameter);
  void prepare_rows(const Rows& rows);

  /// Skips the step for which rows were prepared: no step() follows.
  void drop_step();

  /// Applies all late updates. Call it before a parameter is read as a whole.
  void settle();

  void zero_grad();  // sets each .grad to undefined, which frees its memory or returns it to its bucket

  /// The state by name ("optimizer.momentum_buffer.<parameter>", ...), placed as its parameter is. The tensors are
  /// the optimizer's own, not copies.
  std::vector<Parameter> state() const;

 private:
  /// The numbers of one parameter that a group may change.
  struct Numbers {
    double weight_decay = 0, rate = 1;

    bool operator==(const Numbers&) const = default;
  };
  /// The tensors of parameters with the same numbers, of one type and on one device.
  struct Lists {
    Numbers numbers;
    std::vector<Tensor> weights = {}, gradients = {}, first = {}, second = {}, steps = {};

    void flatten();
  };
  Tensor step_count_of(const Parameter& parameter) const;
  Numbers numbers_of(const Parameter& parameter) const;
  Lists& lists_of(size_t parameter, std::vector<Lists>& groups) const;
  void add(size_t parameter, std::vector<Lists>& groups) const;
  void update(Lists& lists, double learning_rate) const;
  void step_some_rows(size_t parameter, const Rows& rows, const Tensor& gradient, double learning_rate);
  void step_dense(double learning_rate);

  std::vector<Parameter> parameters_;
  OptimizerOptions options_;
  std::vector<Numbers> numbers_;  // one a parameter, as are the lists of tensors that are not empty
  std::vector<Tensor> first_, second_, steps_;
  std::optional<detail::LazyDecay> lazy_;
  double lazy_rate_ = 1;  // of the parameter whose rows are updated late
};

/// How the squares of a norm are added.
enum class NormSum : uint8_t {
  quickly,  // rounded, one part of a tensor after the other
  exactly,  // without rounding: the same bits however tensors are cut. About a nanosecond a number more
};

/// Bytes that clip_grad_norm() needs besides the gradients.
int64_t clip_memory(const std::vector<Parameter>& parameters, NormSum sum = NormSum::quickly,
                    parallel::Axes along = parallel::Axes::all());

/// Scales all gradients down so that their total norm over all ranks is at most `largest`; each part of a tensor counts
/// once, however many ranks hold it. Returns the norm before scaling, the same bits on all ranks. `group`: the ranks
/// that differ `along` these axes, by default all ranks of the job. Collective: no message if all of them hold every
/// parameter alike, otherwise one, of 8 bytes or, with NormSum::exactly, of 1,096. So if one rank lists a parameter
/// that another holds otherwise, each rank must list one, or no parameter.
double clip_grad_norm(const std::vector<Parameter>& parameters, double largest, comm::ProcessGroup& group,
                      NormSum sum = NormSum::quickly, parallel::Axes along = parallel::Axes::all());

}  // namespace tandem::train
