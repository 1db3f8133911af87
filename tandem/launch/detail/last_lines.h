#pragma once
#include <optional>
#include <string>
#include <vector>

namespace tandem::launch::detail {

/// The files in which ranks leave the line of their error, so that of several ranks that fail for one reason only one
/// is heard: torchrun's error files, with the keys "line" and "status" for an agent that prints the line. They are in
/// memory, and end with this process.
class LastLines {
 public:
  explicit LastLines(int ranks);  // a rank without a file, where the system refuses one, prints its line itself
  ~LastLines();
  LastLines(const LastLines&) = delete;
  LastLines& operator=(const LastLines&) = delete;

  /// The value of TORCHELASTIC_ERROR_FILE for a rank; "" if it has no file.
  std::string path(int rank) const;

  /// What the rank has left, and the status with which it then wanted to exit; nullopt if it has left nothing.
  std::optional<std::string> line(int rank) const;
  std::optional<int> status(int rank) const;

 private:
  std::vector<int> files_;  // by rank; -1: none
};

}  // namespace tandem::launch::detail
