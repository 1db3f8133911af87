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

/// A tensor that comes while it is written: `give` hands its pieces to `take`, in C order, and keeps none.
struct TensorSource {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  std::function<void(const std::function<void(const Tensor& piece)>& take)> give;
};

/// What the format calls an element type, "F32"; "" for one that it does not have.
std::string_view safetensors_dtype(at::ScalarType type);

/// Writes a safetensors file that Python's safetensors opens, and waits until it is on the disk.
///   tensors   strided, any device; stored without holes in C order; names differ, UTF-8, at most 4096 bytes
///   metadata  put beside format = "pt" and one tandem.xxh3.<name> a tensor, the checksum of its bytes
/// Memory: a copy of one tensor at a time, only where it is not a contiguous CPU tensor. On failure no file of that
/// name remains. Throws IoError (full disk and the like), c10::ValueError (names, layouts), c10::TypeError (an element
/// type that the format has not).
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// The same of tensors that are not in memory. Memory: a piece. Also throws what the sources throw, and c10::ValueError
/// when pieces have another type, or other bytes in all, than the source has said.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                       const std::map<std::string, std::string>& metadata = {});

/// A safetensors file, whoever wrote it. The header is checked when it is opened, each tensor's bytes when it is read.
/// Reading is const and safe from several threads.
class SafetensorsFile {
 public:
  /// Throws DataError (damaged), IoError (cannot be read).
  explicit SafetensorsFile(const std::filesystem::path& path);

  std::vector<std::string> names() const;  // by place in the file
  bool contains(const std::string& name) const { return places_.contains(name); }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  /// These throw DataError for a name that is not there, or an element type that libtorch has not.
  at::ScalarType dtype(const std::string& name) const;
  const std::vector<int64_t>& shape(const std::string& name) const;

  /// A new CPU tensor. Throws DataError when the bytes do not have the checksum that the metadata gives, if it does.
  Tensor read(const std::string& name) const;

  /// Reads every byte of a tensor once: those from byte `first` of the tensor on fill `target`, the others are only
  /// checked. Memory: one MiB at most. Throws as read() does, also when the checksum is missing, and NonFiniteError
  /// when a number is infinite or NaN; then `target` holds anything.
  void read_sound(const std::string& name, uint64_t first, std::span<std::byte> target) const;

  /// Reads every byte once in little memory; throws as read() does, also when a checksum is missing.
  void verify() const;

  uint64_t size() const { return file_.size(); }
  uint64_t data_bytes() const { return file_.size() - header_.data_begin; }

  /// Of the header's bytes. Since the header holds each tensor's checksum, it stands for the whole file.
  const std::string& header_checksum() const { return header_checksum_; }

 private:
  /// What is asked of a tensor beside the checksum that the file may give.
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
