#pragma once

namespace tandem::test {

/// A socket that listens on a port of its own until its end.
class TakenPort {
 public:
  TakenPort();
  ~TakenPort();
  TakenPort(const TakenPort&) = delete;

  int number() const { return number_; }

 private:
  int socket_, number_ = 0;
};

/// A port that nobody listens on now.
int free_port();

/// Waits until somebody listens on that port of this machine; false after ten seconds.
bool is_served_soon(int port);

}  // namespace tandem::test
