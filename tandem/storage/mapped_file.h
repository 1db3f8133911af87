#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace tandem::storage {

/// A file's bytes, mapped for reading: nothing is copied, pages are loaded when used. Move only.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws IoError with the system's reason; an empty file has no bytes and is no error.
  explicit MappedFile(const std::filesystem::path& file);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace tandem::storage
