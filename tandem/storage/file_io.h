#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tandem::storage {

// The files that a run writes are opened here. If the name of such a file is a symbolic link, the link is not followed,
// and its target stays as it is. Links above the last part of a path are followed, so that a run's folder may lie on
// another disk.

/// A new file; each write is checked. Replaces an older file or link of that name; a device or a pipe is written to as
/// it is. Unless finish() was called, the destructor removes the file.
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

  uint64_t size() const { return size_; }  // at the time of opening
  const std::filesystem::path& path() const { return path_; }

  /// Fills `bytes`. Throws DataError if the file ends before that, IoError if it cannot be read.
  void read_at(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  uint64_t size_ = 0;
};

/// True if the path leads to something; links are followed. Throws IoError if that cannot be found out, as in a folder
/// that may not be searched.
bool is_there(const std::filesystem::path& path);

/// The file beside `path` in which its bytes are collected before it gets its name: `path` + `suffix`, with a long name
/// cut.
std::filesystem::path part_of(const std::filesystem::path& path, std::string_view suffix);

/// The whole file as text. Throws DataError if it is longer than `limit` bytes, IoError if it cannot be read.
std::string read_text_file(const std::filesystem::path& path, uint64_t limit);

/// Writes a file, whole or not at all, and waits until its bytes are on the disk: the parts, one after the other. An
/// older file of that name stays until then; a failure leaves nothing else behind. The bytes are first written to
/// part_of(path, suffix); processes that may write the same file at once need different suffixes. Throws IoError.
void write_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts,
                std::string_view suffix = ".tmp");
void write_text_file(const std::filesystem::path& path, std::string_view text);

/// Opens a log for append_whole(); `append`: keeps its contents. The caller must close the descriptor. Throws IoError,
/// also if the log is a link.
int open_log(const std::filesystem::path& path, bool append);

/// Appends all of `record` to an open log, or nothing: a part that was written is cut off again. Returns "" on success,
/// else the system's reason.
std::string append_whole(int descriptor, std::string_view record);

void make_folders(const std::filesystem::path& folder);  // and its parents; all are synced to the disk

/// Like make_folders(), for a folder in which a run writes. Throws IoError if the folder is a link; its parents may be
/// links.
void make_own_folder(const std::filesystem::path& folder);

/// Throws IoError if `path` is a link.
void refuse_link(const std::filesystem::path& path);

/// False if the open file or a folder above it was removed, or another file has taken its place. Returns true on errors
/// that do not clearly mean this: a network drive may fail for a moment.
bool is_in_place(int descriptor, const std::filesystem::path& path);

void remove_tree(const std::filesystem::path& path);  // no error if it does not exist
void sync_folder(const std::filesystem::path& folder);

/// Renames a file in one step and replaces a file that is already called `to`.
void rename_over(const std::filesystem::path& from, const std::filesystem::path& to);

/// Renames in one step; a folder that is already called `to` changes places with `from`. File systems that cannot
/// exchange names (NFS) need two steps, and the older folder is then called `from`.old.
void rename_or_swap(const std::filesystem::path& from, const std::filesystem::path& to);

/// For tests: called before each operation ("create", "write", "sync", "make", "rename", "remove", "read") with its
/// path. May throw or wait to simulate a fault. Must be set while no file is in use.
using FileHook = std::function<void(std::string_view operation, const std::filesystem::path& path)>;
void set_file_hook(FileHook hook);

}  // namespace tandem::storage
