#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/storage/detail/safetensors_header.h"
#include "tandem/storage/file_io.h"

namespace tandem::storage {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// A tensor that is produced while it is written: `give` passes its pieces to `take`, in C order, and must not keep
/// them.
struct TensorSource {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  std::function<void(const std::function<void(const Tensor& piece)>& take)> give;
};

/// The format's name for an element type, "F32"; "" if the format does not have the type.
std::string_view safetensors_dtype(at::ScalarType type);

/// Writes a safetensors file that Python's safetensors opens, and waits until it is on the disk.
///   tensors   strided, any device; stored in C order without gaps; unique names, UTF-8, at most 4096 bytes
///   metadata  stored with format = "pt" and, per tensor, tandem.xxh3.<name>, the checksum of its bytes
/// Memory: a copy of one tensor at a time, only if it is not a contiguous CPU tensor. On failure no file of that name
/// remains. Throws IoError (full disk and the like), c10::ValueError (names, layouts), c10::TypeError (an element type
/// that the format does not have).
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Like above, for tensors that are not in memory. Memory: one piece. Also throws what the sources throw, and
/// c10::ValueError if the pieces of a source have another type, or another number of bytes in all, than it says.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                       const std::map<std::string, std::string>& metadata = {});

/// A safetensors file, written by any program. The header is checked when the file is opened, the bytes of a tensor
/// when it is read. Reading is const and safe from several threads.
class SafetensorsFile {
 public:
  /// Throws DataError (damaged), IoError (cannot be read).
  explicit SafetensorsFile(const std::filesystem::path& path);

  std::vector<std::string> names() const;  // in the order of the file
  bool contains(const std::string& name) const { return places_.contains(name); }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  /// Throw DataError for an unknown name; dtype() also for an element type that libtorch does not have.
  at::ScalarType dtype(const std::string& name) const;
  const std::vector<int64_t>& shape(const std::string& name) const;

  /// A new CPU tensor. Throws DataError if the metadata has a checksum for the tensor and its bytes do not match, or as
  /// dtype() does.
  Tensor read(const std::string& name) const;

  /// The bytes of a tensor from byte `first` on, as many as `target` has. All bytes of the tensor are read, in one MiB
  /// of memory, if the metadata has a checksum for it; else only these. Throws as above, and c10::ValueError if the
  /// tensor has not so many bytes.
  void read(const std::string& name, uint64_t first, std::span<std::byte> target) const;

  /// Reads and checks every byte of a tensor once; the bytes from byte `first` of the tensor on are written to
  /// `target`. Memory: one MiB at most. Throws as read() does, DataError also if the checksum is missing, and
  /// NonFiniteError if a number is infinite or NaN. The contents of `target` are then unspecified.
  void read_sound(const std::string& name, uint64_t first, std::span<std::byte> target) const;

  /// Reads and checks every byte of the file's tensors once, in little memory. Throws as read() does, also if a
  /// checksum is missing.
  void verify() const;

  uint64_t size() const { return file_.size(); }
  uint64_t data_bytes() const { return file_.size() - header_.data_begin; }

  /// The checksum of the header's bytes. Since the header holds each tensor's checksum, it stands for the whole file.
  const std::string& header_checksum() const { return header_checksum_; }

 private:
  /// What a tensor must have besides a matching checksum, if the file gives one.
  struct Demands {
    bool checksum = false;
    bool finite = false;
  };
  const detail::SafetensorsEntry& entry(const std::string& name) const;
  void scan(const detail::SafetensorsEntry& place, uint64_t first, std::span<std::byte> target,
            const Demands& demands) const;
  void check_bools(const std::string& name, std::span<const std::byte> bytes) const;
  void check(const detail::SafetensorsEntry& entry, const std::string& found, bool required) const;

  InputFile file_;
  detail::SafetensorsHeader header_;
  std::map<std::string, size_t> places_;
  std::string header_checksum_;
};

}  // namespace tandem::storage
