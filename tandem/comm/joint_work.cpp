#include "tandem/comm/joint_work.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tandem/base/context.h"
#include "tandem/base/threads.h"
#include "tandem/comm/wire_bytes.h"

namespace tandem::comm {
namespace {

constexpr int64_t kAtWork = -1;

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
  const auto number = group_.begin(call, {});
  word_.fill_(own);
  try {
    const flight::CallScope scope(&call);
    std::vector<Tensor> words = {word_};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MIN;
    group_.backend().allreduce(words, options)->wait();
  } catch (const std::exception& error) {
    group_.log()->fail(number, call, error);
  }
  group_.log()->end(number);
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

}  // namespace tandem::comm
