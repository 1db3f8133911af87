#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::memory {

struct BlockRecord;
struct Chain;
struct KeepWay;

/// One way to keep what the backward of a block needs, from its forward to its backward.
struct Keep {
  std::string name;                  // of the way, a row of keep_ways() (keep_ways.h); empty: plainly
  int64_t bytes = 0;                 // that stay, besides the block's input and output
  bool input = true, output = true;  // whether these stay too
  int64_t forward_extra = 0;         // at the peak of forward, above input, output and `bytes`
  int64_t backward_extra = 0;        // at the peak of backward, above what lives when it begins
  double forward = 0, backward = 0;  // seconds
  double spared = 0;                 // of forward, where a recomputation ends with it: 0 if the output stays
};

/// A storage that a block receives and passes on, such as the shortcut around a residual block.
struct Shortcut {
  int stage = 0;  // that made it
  int64_t bytes = 0;
};

/// A block of a chain, as the planner sees it.
///
/// What a block passes on, `output` and its shortcuts, has a gradient of the same size. The bytes of a shortcut count
/// once, however many blocks keep it or pass it on. The input of the chain counts nowhere: its owner holds it.
struct Stage {
  std::string name;
  int64_t output = 0;                  // bytes of what it makes and passes on
  std::vector<Shortcut> shortcuts;     // of earlier stages, all of which the stage before passes on or makes
  int64_t forward_extra = 0;           // at the peak of a forward that keeps nothing, above input and output
  double forward = 0;                  // seconds of a forward that keeps nothing
  int64_t gradients = 0;               // bytes that its backward leaves: gradients of parameters
  std::vector<Keep> keeps = {Keep()};  // at least one; the first is plain
  int parts = 1;                       // of the block, if it can be cut
};

/// The stages of a chain whose blocks were rehearsed (rehearsal.h), with the plain way to keep. The bytes are upper
/// bounds where a record does not tell more: a flow of which a part stays, stays as a whole; a forward that keeps
/// nothing peaks as if it kept; what backward frees of its input and output is not counted; each value of a flow has a
/// gradient of its own. The gradient of the last output lives to the end of backward. The seconds are nominal; backward
/// takes twice those of forward.
std::vector<Stage> stages_of(const Chain& chain, const std::vector<BlockRecord>& records);

/// Adds a way to keep to each stage. `kept`: the stages of the same chain whose blocks are all kept in the way
/// (kept_chain(), keep_ways.h). Packing and unpacking cost the bytes that they move.
void add_keep(std::vector<Stage>& stages, const KeepWay& way, const std::vector<Stage>& kept);

/// What a plan does with the blocks `first` to `last`.
///
/// Without `inner`, it keeps one block: its forward runs once, and what its backward needs stays, in the way
/// `stage.keeps[keep]`. With `inner`, it recomputes the blocks: their forward keeps nothing but the input of the first.
/// When backward reaches them, they run again as `inner` says, which covers the same blocks, and their backward
/// follows. The input stays until the backward of `first` is over.
///
///   0 (1-2 (3-4)) 5     forward   0* 1 2 3 4 5*                          * keeps
///                       backward  5 | 1* 2* 3 4 | 3* 4* | 4 3 | 2 1 | 0
struct PlanNode {
  int first = 0, last = 0;
  int keep = 0;
  std::vector<PlanNode> inner;

  bool operator==(const PlanNode&) const = default;
};

/// Covers all blocks of a chain, in order.
using RecomputePlan = std::vector<PlanNode>;

/// "0-2 (3-4 (5-8)) 9:bf16": blocks 0 to 2 are kept, 3 to 8 recomputed, 5 to 8 twice, and 9 is kept in the way 1,
/// whose name is that of the first row of keep_ways(). A way beyond the table is a number.
std::string to_text(const RecomputePlan& plan);

/// The same plan for the chain whose blocks are cut into their parts (in_parts(), chain.h).
RecomputePlan in_parts(const RecomputePlan& plan, const std::vector<Stage>& stages);

/// Throws c10::ValueError if the text has another form.
RecomputePlan parse_plan(std::string_view text);

/// Keeps every block plainly.
RecomputePlan plan_none(const std::vector<Stage>& stages);

/// About sqrt(n) segments, of which plain keeping would hold about equal bytes. The last is kept, the others are
/// recomputed once. Source: Chen et al. 2016 (arXiv:1604.06174), section 4.
RecomputePlan plan_sqrt(const std::vector<Stage>& stages);

/// Recomputes the first half of the chain, both halves in the same manner again. Kept flows grow with log2 n, forwards
/// with n log2 n. Source: the same, section 4.3.
RecomputePlan plan_log(const std::vector<Stage>& stages);

/// The fastest of all plans whose peak is at most `budget` bytes. Throws SettingsError if there is none; the error
/// names the least budget and the block that sets it. See RecomputePlanner.
RecomputePlan plan_optimal(const std::vector<Stage>& stages, int64_t budget);

/// Recomputes all as one segment, of which the input alone is kept: for one of many micro-batches whose backward is far
/// from its forward.
RecomputePlan plan_all(const std::vector<Stage>& stages);

/// A way to plan by its name: none, all, sqrt, log, optimal; lossy: as optimal, of stages that have lossy ways to keep
/// too.
struct PlanMethod {
  std::string_view name;
  bool has_budget = false;  // needs one, and cuts blocks into their parts
  RecomputePlan (*plan)(const std::vector<Stage>& stages, int64_t budget) = nullptr;
  bool is_lossy = false;
  bool keeps_loss = false;  // made for the blocks before the one with the loss, which is kept
};
const std::vector<PlanMethod>& plan_methods();

/// The plan of a method for a chain; `ends_with_loss`: of its last block.
RecomputePlan plan_by(const PlanMethod& method, const std::vector<Stage>& stages, int64_t budget, bool ends_with_loss);

/// Plans of chains that follow each other, as one plan of all their blocks; and the part of such a plan that is of
/// `count` blocks from `first` on.
RecomputePlan joined(RecomputePlan plan, const RecomputePlan& next);
RecomputePlan part_of(const RecomputePlan& plan, int first, int count);

/// One run of a block in a step: a forward that keeps nothing, a forward that keeps, or a backward.
struct PlanStep {
  enum class What : uint8_t { pass, keep, backward };

  What what = What::pass;
  int stage = 0;
  int64_t peak = 0, live = 0;  // bytes: the most while it runs, and after it

  bool operator==(const PlanStep&) const = default;
};

/// All runs of a step that executes the plan, in order. Throws c10::ValueError if the plan does not fit the stages, or
/// the stages do not fit one another.
std::vector<PlanStep> steps_of(const RecomputePlan& plan, const std::vector<Stage>& stages);

/// What a step costs that executes a plan.
struct PlanCost {
  int64_t peak = 0;         // bytes
  PlanStep at_peak;         // the first such run
  int64_t nanoseconds = 0;  // each forward and each backward is rounded to whole ones
  int64_t forwards = 0;     // runs; without recomputation as many as blocks
};
PlanCost cost_of(const RecomputePlan& plan, const std::vector<Stage>& stages);

/// The least peak that any plan has, and the run of a block that has it.
struct LeastBudget {
  int64_t bytes = 0;
  PlanStep at;
};
LeastBudget least_budget(const std::vector<Stage>& stages);

/// A peak in bytes, and the least time within it.
struct Tradeoff {
  int64_t bytes = 0;
  int64_t nanoseconds = 0;

  bool operator==(const Tradeoff&) const = default;
};

/// The fastest plans for all budgets from `from` to `to`: exact in bytes and nanoseconds, by dynamic programming
/// (detail/plan_search.h).
///
/// The plans searched are all that PlanNode can express. A schedule that drops what it kept, or keeps a block only the
/// second time, can be faster. A larger budget never gives a slower plan. Time and memory grow with the number of
/// distinct tradeoffs; a narrow range of budgets has fewer of them.
class RecomputePlanner {
 public:
  explicit RecomputePlanner(std::vector<Stage> stages, int64_t from = 0,
                            int64_t to = std::numeric_limits<int64_t>::max());
  ~RecomputePlanner();

  /// The budgets of the range from which on a faster plan fits, ascending. Empty if no plan fits the range.
  const std::vector<Tradeoff>& tradeoffs() const;

  /// Throws SettingsError if no plan fits the budget, and c10::ValueError if the budget is outside the range.
  RecomputePlan plan(int64_t budget) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// No schedule of any kind within `budget` takes less time: each block runs forward and backward once, and at the first
/// backward, what blocks keep is within the budget; the forward of any other block runs again. A fractional knapsack.
int64_t least_nanoseconds(const std::vector<Stage>& stages, int64_t budget);

}  // namespace tandem::memory
