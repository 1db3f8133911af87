#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/comm/process_group.h"

namespace tandem::parallel {

/// Gradients that travel together.
struct GradientBucket {
  struct Member {
    size_t parameter;       // index among the parameters that are trained
    std::string_view name;  // of the parameter
    Tensor gradient;        // a view of `flat` with the parameter's sizes and strides
  };

  Tensor flat;                  // [n], the gradients one behind the other
  std::vector<Member> members;  // in their order in `flat`; empty unless GradientHook::reads_members()
  flight::Where where;          // the call site, for the calls that a hook makes
};

/// The way in which the gradients of a bucket become their sums over the ranks: the communication hook of
/// DistributedDataParallel. The classes of Tandem are the rows of gradient_hooks(); a class of your own needs a
/// GradientHookKind of its own.
class GradientHook {
 public:
  virtual ~GradientHook() = default;

  /// Replaces the gradients of this rank by their sums over the ranks of `group`, or by what stands for them: the same
  /// numbers on all ranks. Runs beside backward, on a thread of `group` that runs nothing else: the buckets of a step
  /// one after the other, in the same order on all ranks. The function may make any calls of comm/collectives.h.
  ///
  /// If the first element of the bucket is NaN on some rank, it must be NaN on all ranks afterwards: so a rank tells
  /// the others that it lacks a gradient. An exception ends backward on this rank.
  virtual void sum(const GradientBucket& bucket, comm::ProcessGroup& group) = 0;

  /// True if sum() reads GradientBucket::members.
  virtual bool reads_members() const { return false; }
};

struct GradientHookOptions {
  int64_t bucket_bytes = 25 << 20;  // gradients that are converted at a time
  int64_t rank = 2;                 // of the matrices that stand for a gradient
};

struct GradientHookKind {
  std::string_view name;  // as settings spell it
  std::string_view doc;   // for the settings' table

  /// `parameters`: those that are trained, in the order of GradientBucket::Member::parameter.
  std::unique_ptr<GradientHook> (*make)(const std::vector<Tensor>& parameters, const GradientHookOptions& options);

  bool has_rank = false;  // reads GradientHookOptions::rank

  /// Adds what it has kept of a step's gradients to those of the next: all steps must have one scale of the loss, and a
  /// step that is left out has changed what is kept.
  bool keeps_errors = false;

  /// After some steps nothing is summed any more, and models become their mean in place of gradients: the strategy is
  /// PostLocalSgd (post_local_sgd.h). In DistributedDataParallel alone every step is summed.
  bool goes_apart = false;
};

/// All kinds; the first, plain sums, is the default.
std::span<const GradientHookKind> gradient_hooks();

/// Throws c10::ValueError for an unknown name.
const GradientHookKind& gradient_hook(std::string_view name);

}  // namespace tandem::parallel
