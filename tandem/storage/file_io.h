#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tandem::storage {

// Files are opened for writing here only. No name that a run writes is followed when it is a link: what the link leads
// to stays as it is. Links above the last part of a path are followed, so that a run's folder may lie on another disk.

/// A new file of which each write is checked. It takes the place of an older file or link of that name; a device or a
/// pipe is written to. Without finish() the file is removed.
/// Every operation throws IoError with the file's name and the system's reason.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(std::span<const std::byte> bytes) { write_at(size_, bytes); }
  void write_at(uint64_t offset, std::span<const std::byte> bytes);

  /// Waits until the bytes are on the disk, then closes.
  void finish();

 private:
  std::filesystem::path path_;
  int descriptor_;
  bool is_new_ = true;
  uint64_t size_ = 0;
};

/// A file opened for reading at any offset; several threads may read at once.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  InputFile(InputFile&& other) noexcept;
  ~InputFile();
  InputFile& operator=(InputFile&&) = delete;

  uint64_t size() const { return size_; }  // when it was opened
  const std::filesystem::path& path() const { return path_; }

  /// Fills `bytes`. Throws DataError when the file ends before, IoError when it cannot be read.
  void read_at(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  uint64_t size_ = 0;
};

/// The whole file. Throws DataError when it is longer than `limit` bytes, IoError when it cannot be read.
std::string read_text_file(const std::filesystem::path& path, uint64_t limit);

/// Writes a small file, whole or not at all, and waits until its bytes are on the disk. An older file of that name
/// stays until then; a failure leaves nothing else behind. Throws IoError.
void write_text_file(const std::filesystem::path& path, std::string_view text);

/// Opens a log for append_whole(); `append`: what it holds stays. The caller closes the descriptor. Throws IoError,
/// also when the log is a link.
int open_log(const std::filesystem::path& path, bool append);

/// Appends to an open log all of `record` or, cutting off a part that was written, nothing. Returns the system's reason
/// when it could not, else "".
std::string append_whole(int descriptor, std::string_view record);

void make_folders(const std::filesystem::path& folder);  // with its parents, each on the disk afterwards

/// The same of a folder in which a run writes. Throws IoError when the folder is a link; its parents may be links.
void make_own_folder(const std::filesystem::path& folder);

/// Throws IoError when `path` is a link.
void refuse_link(const std::filesystem::path& path);

/// False when somebody has removed the open file, or a folder above it, or has put another file in its place. An error
/// that does not say clearly that the file is gone counts as true: a network drive may fail for a moment.
bool is_in_place(int descriptor, const std::filesystem::path& path);

void remove_tree(const std::filesystem::path& path);  // no error when it is not there
void sync_folder(const std::filesystem::path& folder);

/// Renames a file in one step; one that is already called `to` is gone.
void rename_over(const std::filesystem::path& from, const std::filesystem::path& to);

/// Renames in one step; a folder that is already called `to` changes places with `from`.
void rename_or_swap(const std::filesystem::path& from, const std::filesystem::path& to);

/// For tests: called before each operation ("create", "write", "sync", "make", "rename", "remove", "read") with its
/// path; may throw or wait to play a fault. Set it while no file is in use.
using FileHook = std::function<void(std::string_view operation, const std::filesystem::path& path)>;
void set_file_hook(FileHook hook);

}  // namespace tandem::storage
