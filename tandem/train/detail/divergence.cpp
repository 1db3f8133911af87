#include "tandem/train/detail/divergence.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "tandem/base/finite.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"

namespace tandem::train::detail {
namespace {

constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

/// `before`, the name of the tensor, `behind`. Other ranks may list other parts of the tensors in that place: the rank
/// at fault tells them the name.
NonFiniteError tensor_fault(const std::string& before, const std::string& behind, const std::vector<Parameter>& tensors,
                            const NonFinite& found, comm::ProcessGroup& group) {
  std::string own_name;
  bool is_split = false;
  if (group.rank() == found.rank) {
    const auto& tensor = tensors[found.place];
    own_name = tensor.name;
    is_split = !tensor.placement.is_everywhere();
  }
  const auto name = comm::broadcast_text(own_name, found.rank, group);
  NonFiniteError error(before + "'" + name + "'" + behind + ", wanted finite numbers");
  if (comm::broadcast_number(is_split ? 1 : 0, found.rank, group) == 1) error.set_rank(found.rank, group.size());
  return error;
}

/// Those of a device are looked at together: the host waits for it once.
std::optional<int64_t> first_of(const std::vector<Tensor>& tensors) {
  const auto is_there = [](const Tensor& x) { return x.defined() && !x.is_cpu() && x.is_floating_point(); };
  std::vector<Tensor> there(tensors.size());
  Tensor flags;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_there(tensors[i])) continue;
    there[i] = tensors[i];
    const auto count = static_cast<int64_t>(tensors.size());
    if (!flags.defined()) flags = at::empty({count}, at::device(tensors[i].device()).dtype(at::kDouble));
  }
  if (flags.defined()) {
    note_finite(there, flags);
    flags = flags.cpu();
  }
  const auto* is_finite = flags.defined() ? flags.const_data_ptr<double>() : nullptr;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (there[i].defined() ? is_finite[i] == 0 : tensors[i].defined() && !all_finite(tensors[i])) {
      return static_cast<int64_t>(i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> first_nonfinite(const std::vector<Parameter>& tensors) {
  std::vector<Tensor> values;
  for (const auto& one : tensors) values.push_back(one.tensor.detach());
  return first_of(values);
}

NonFiniteError loss_fault(const std::string& which, int64_t step, double value) {
  const std::string number = std::isnan(value) ? "not a number" : value > 0 ? "infinite" : "minus infinite";
  return NonFiniteError(which + std::to_string(step) + " is " + number + ", wanted a finite number");
}

NonFiniteError gradient_fault(const std::vector<Parameter>& tensors, const NonFinite& found, int64_t step,
                              comm::ProcessGroup& group) {
  return tensor_fault("gradient of ", " in step " + std::to_string(step) + " is not finite", tensors, found, group);
}

NonFiniteError state_fault(const std::vector<Parameter>& tensors, const NonFinite& found, int64_t step,
                           comm::ProcessGroup& group) {
  return tensor_fault("", " is not finite after step " + std::to_string(step), tensors, found, group);
}

StepVote agree(bool stop, std::optional<int64_t> own_fault, comm::ProcessGroup& group) {
  const int64_t own = own_fault ? *own_fault * group.size() + group.rank() : kNone;
  TORCH_CHECK_VALUE(own <= kNone, "place of a tensor is ", *own_fault, ", wanted fewer tensors");
  const auto votes = at::tensor(std::vector<int64_t>{stop ? 0 : 1, own}, at::kInt);
  comm::all_reduce_(votes, group, comm::Reduce::min);
  const int* counted = votes.const_data_ptr<int>();
  StepVote vote{counted[0] == 0, std::nullopt};
  const int first = counted[1];
  if (first != kNone) vote.fault = NonFinite{first / group.size(), first % group.size()};
  return vote;
}

}  // namespace tandem::train::detail
