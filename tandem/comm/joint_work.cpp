#include "tandem/comm/joint_work.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <optional>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/threads.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/wire_bytes.h"

namespace tandem::comm {
namespace {

constexpr int64_t kAtWork = -1;

std::optional<Error> error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// That of `root`, on every rank.
[[noreturn]] void throw_error_of(int root, const std::optional<Error>& own, ProcessGroup& group) {
  const auto fault = broadcast_text(own ? own->fault() : "", root, group);
  const auto remedy = broadcast_text(own ? own->remedy() : "", root, group);
  const auto code = broadcast_number(own ? static_cast<int>(own->code()) : 0, root, group);
  Error error(static_cast<ExitCode>(code), fault, remedy);
  error.set_rank(root, group.size());
  throw_typed(error);
}

}  // namespace

JointWork::JointWork(ProcessGroup& group, flight::Where where)
    : group_(group), where_(where), word_(at::empty({1}, at::kLong)) {
  if (group_.size() > 1) companion_ = start_thread([this, context = current_context()] { keep_company(context); });
}

JointWork::~JointWork() { stop(); }

void JointWork::stop() {
  if (!companion_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  companion_.join();
}

void JointWork::keep_company(const Context& context) {
  const ContextScope scope(context);
  const auto interval = group_.timeout() / 4;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [&] { return is_ending_; })) {
    lock.unlock();
    try {
      exchange(kAtWork);
    } catch (...) {
      fault_ = std::current_exception();  // end() throws it
      return;
    }
    lock.lock();
  }
}

int64_t JointWork::exchange(int64_t own) {
  flight::CallInfo call;
  call.operation = "all_reduce";
  call.shape = {1};
  call.type = "Long";
  call.detail = "min";
  call.where = where_;
  const auto number = group_.calls().begin(call, {});
  word_.fill_(own);
  try {
    const flight::CallScope scope(&call);
    std::vector<Tensor> words = {word_};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MIN;
    group_.calls().backend().allreduce(words, options)->wait();
  } catch (const std::exception& error) {
    group_.calls().log()->fail(number, call, error);
  }
  group_.calls().log()->end(number);
  return word_.item<int64_t>();
}

int64_t JointWork::end(int64_t answer) {
  TORCH_CHECK_VALUE(answer >= 0, "joint work's answer is ", answer, ", wanted 0 or more");
  if (group_.size() == 1) return answer;
  stop();
  if (fault_) std::rethrow_exception(fault_);
  int64_t least = kAtWork;
  while (least == kAtWork) least = exchange(answer);
  group_.meter().add("all_reduce", WireBytes{group_.rank(), group_.size()}.all_reduce(1, sizeof answer),
                     group_.members());
  return least;
}

void jointly(ProcessGroup& group, const std::function<void()>& work, flight::Where where) {
  JointWork joint(group, where);
  const auto own = error_of(work);
  const int root = static_cast<int>(joint.end(own ? group.rank() : group.size()));
  if (root < group.size()) throw_error_of(root, own, group);
}

void on_leader(ProcessGroup& group, const std::function<void()>& work, flight::Where where) {
  JointWork joint(group, where);
  const auto own = group.rank() == 0 ? error_of(work) : std::nullopt;
  if (joint.end(own ? 0 : 1) == 0) throw_error_of(0, own, group);
}

}  // namespace tandem::comm
