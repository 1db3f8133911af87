#pragma once
#include <filesystem>
#include <span>
#include <string>

namespace tandem::test {

/// A fresh folder, in memory where the system has one (syncing is free there); removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// A file's bytes; "" when it cannot be read.
std::string slurp(const std::filesystem::path& path);

/// Writes a file, and the folders above it.
void spill(const std::filesystem::path& path, const std::string& bytes);

std::span<const std::byte> bytes_of(const std::string& text);

/// The sources' root.
std::filesystem::path sources();

}  // namespace tandem::test
