#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tandem::train {

/// A fresh folder in memory where the system has one (syncing is free there), removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const bool has_memory = access("/dev/shm", W_OK) == 0;
    std::string name = (has_memory ? "/dev/shm/" : testing::TempDir()) + "tandem_XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void spill(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// The text of the exception that `run` throws; "" when it throws none.
template <class Exception, class Run>
std::string text_of(Run run) {
  try {
    run();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace tandem::train
