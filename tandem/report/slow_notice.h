#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tandem::report {

/// Logs one line if this object lives longer than `patience`: what the program is doing, for work that shows no
/// progress. Short work stays quiet. Without a thread to spare it does nothing.
class SlowNotice {
 public:
  using Sink = std::function<void(std::string_view line)>;

  /// `shown`: set it to false on all ranks but one. `patience` and `sink` are for tests; the sink defaults to
  /// log::info.
  explicit SlowNotice(std::string text, bool shown = true,
                      std::chrono::milliseconds patience = std::chrono::milliseconds(1000), Sink sink = {});
  ~SlowNotice();
  SlowNotice(const SlowNotice&) = delete;
  SlowNotice& operator=(const SlowNotice&) = delete;

 private:
  struct Timer;
  std::unique_ptr<Timer> timer_;
};

}  // namespace tandem::report
