#pragma once
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace tandem::data {

/// Samples whose files break the rules of their format, though all their pixels were decoded. Each counts once, however
/// often it is read. Several threads may call add() at once.
class OddSamples {
 public:
  /// `what` names the file and its fault: "image 'x.jpg': Corrupt JPEG data: ...".
  void add(int64_t index, const std::string& what);

  int64_t count() const;
  std::vector<int64_t> indices() const;  // sorted
  std::string example() const;           // `what` of the lowest index; "" if there is none

 private:
  mutable std::mutex mutex_;
  std::set<int64_t> indices_;
  std::string example_;
};

}  // namespace tandem::data
