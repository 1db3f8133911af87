#include "tandem/train/detail/step_endings.h"

#include <c10/core/StreamGuard.h>

#include <chrono>
#include <memory>
#include <optional>

#include "tandem/base/computing_device.h"
#include "tandem/base/seconds.h"

namespace tandem::train::detail {

StepEndings::~StepEndings() {
  for (const auto& ending : endings_) ending.wait();
}

void StepEndings::start(std::function<Reading()> end) {
  auto result = std::make_shared<std::promise<Reading>>();
  endings_.push_back(result->get_future());
  // What endings and steps share is read and written in the order in which the host gives it to one stream.
  group_.queue([this, result, end = std::move(end), stream = own_stream()] {
    try {
      if (failed_) std::rethrow_exception(failed_);
      std::optional<c10::StreamGuard> scope;
      if (stream) scope.emplace(*stream);
      result->set_value(end());
    } catch (...) {
      failed_ = std::current_exception();
      result->set_exception(failed_);
    }
  });
}

Reading StepEndings::wait_first() {
  const auto start = std::chrono::steady_clock::now();
  auto oldest = std::move(endings_.front());
  endings_.pop_front();
  oldest.wait();
  waited_ += seconds_since(start);
  return oldest.get();
}

}  // namespace tandem::train::detail
