#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace tandem::launch::detail {

/// The files in which ranks leave the line of their error, so that of several ranks that fail for one reason only one
/// is heard: torchrun's error files, with the key "line" for an agent that prints it.
class LastLines {
 public:
  LastLines();   // if the folder cannot be made, the ranks print their lines themselves
  ~LastLines();  // removes the folder
  LastLines(const LastLines&) = delete;
  LastLines& operator=(const LastLines&) = delete;

  /// The value of TORCHELASTIC_ERROR_FILE for a rank; "" if there is no folder.
  std::string path(int rank) const;

  /// What the rank has left; nullopt if it has left nothing.
  std::optional<std::string> line(int rank) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace tandem::launch::detail
