#pragma once
#include <unistd.h>

namespace tandem::storage::detail {

/// Closes an open file at its end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number_); }

  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace tandem::storage::detail
