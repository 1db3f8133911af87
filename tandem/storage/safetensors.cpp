#include "tandem/storage/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "tandem/base/error.h"
#include "tandem/base/finite.h"
#include "tandem/base/quote.h"
#include "tandem/storage/checksum.h"

namespace tandem::storage {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

constexpr size_t kHashedAtOnce = 1 << 20;  // hashed while still in the cache
constexpr size_t kMaxNameBytes = 4096;
constexpr int64_t kMaxDims = 16;
const std::string kChecksumPrefix = "tandem.xxh3.";

constexpr std::pair<std::string_view, at::ScalarType> kTypes[] = {
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"I16", at::kShort},
    {"U16", at::kUInt16},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I32", at::kInt},
    {"U32", at::kUInt32},
    {"F32", at::kFloat},
    {"C64", at::kComplexFloat},
    {"F64", at::kDouble},
    {"I64", at::kLong},
    {"U64", at::kUInt64},
};

std::string_view dtype_name(const TensorSource& source) {
  const auto name = safetensors_dtype(source.type);
  TORCH_CHECK_TYPE(!name.empty(), "tensor ", quote(source.name), " is of type ", source.type,
                   ", wanted one that safetensors has: convert it");
  return name;
}

/// A dtype's index in the format's order of alignment.
size_t dtype_order(std::string_view dtype) {
  const auto dtypes = detail::safetensors_dtypes();
  size_t at = 0;
  while (dtypes[at].name != dtype) ++at;
  return at;
}

void check_source(const TensorSource& source) {
  const auto& name = source.name;
  TORCH_CHECK_VALUE(!name.empty() && name != "__metadata__" && name.size() <= kMaxNameBytes && is_utf8(name) &&
                        name.find('\0') == std::string::npos,
                    "a tensor's name is ", quote(name), ", wanted UTF-8 of 1 to 4096 bytes without NUL");
}

TensorSource source_of(const NamedTensor& named) {
  const auto& [name, tensor] = named;
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kStrided && tensor.dim() <= kMaxDims, "tensor ",
                    quote(name), " is undefined, sparse or of over 16 dims, wanted a strided one");
  return {name, tensor.scalar_type(), tensor.sizes().vec(), [tensor = tensor](const auto& take) { take(tensor); }};
}

uint64_t bytes_of(const TensorSource& source) {
  return static_cast<uint64_t>(c10::multiply_integers(source.shape)) * c10::elementSize(source.type);
}

/// Tensors in the order in which the format stores them.
std::vector<const TensorSource*> in_file_order(std::span<const TensorSource> sources) {
  std::vector<std::pair<size_t, const TensorSource*>> keyed;
  for (const auto& source : sources) {
    check_source(source);
    keyed.emplace_back(dtype_order(dtype_name(source)), &source);
  }
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->name < b.second->name;
  });
  std::vector<const TensorSource*> sorted;
  for (const auto& [order, source] : keyed) sorted.push_back(source);
  return sorted;
}

detail::SafetensorsHeader layout_of(const std::vector<const TensorSource*>& sorted,
                                    const std::map<std::string, std::string>& metadata) {
  detail::SafetensorsHeader header;
  header.metadata = metadata;
  std::erase_if(header.metadata, [](const auto& pair) { return pair.first.starts_with(kChecksumPrefix); });  // stale
  header.metadata["format"] = "pt";
  uint64_t at = 0;
  for (const auto* source : sorted) {
    header.entries.push_back({source->name, dtype_name(*source), source->shape, at, at + bytes_of(*source)});
    at = header.entries.back().end;
    const bool is_new =
        header.metadata.insert_or_assign(kChecksumPrefix + source->name, std::string(Checksum::kHexDigits, '0')).second;
    TORCH_CHECK_VALUE(is_new, "the tensor's name ", quote(source->name), " is given twice, wanted it once");
  }
  for (const auto& [key, value] : header.metadata) {
    TORCH_CHECK_VALUE(is_utf8(key) && is_utf8(value), "metadata ", quote(key), " is ", quote(value), ", wanted UTF-8");
  }
  return header;
}

std::span<const std::byte> bytes_of(const Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

/// Views a piece of a tensor's bytes as numbers; `bytes` must not cut a number.
Tensor numbers_in(std::span<std::byte> bytes, at::ScalarType type) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size() / c10::elementSize(type))}, type);
}

/// Returns the checksum of what was written.
std::string write_one(OutputFile& file, const TensorSource& source) {
  Checksum checksum;
  uint64_t written = 0;
  source.give([&](const Tensor& piece) {
    TORCH_CHECK_VALUE(piece.scalar_type() == source.type, "a piece of tensor ", quote(source.name), " is of type ",
                      piece.scalar_type(), ", wanted ", source.type);
    const auto contiguous = piece.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
    written += contiguous.nbytes();
    for (auto rest = bytes_of(contiguous); !rest.empty(); rest = rest.subspan(std::min(rest.size(), kHashedAtOnce))) {
      const auto chunk = rest.first(std::min(rest.size(), kHashedAtOnce));
      checksum.update(chunk);
      file.append(chunk);
    }
  });
  TORCH_CHECK_VALUE(written == bytes_of(source), "tensor ", quote(source.name), " came in ", written, " bytes, wanted ",
                    bytes_of(source));
  return checksum.hex();
}

void write_all(OutputFile& file, const std::vector<const TensorSource*>& sorted, detail::SafetensorsHeader header) {
  // The header is written first with room for the checksums, and again at the end, so that each tensor is read once.
  const auto room = detail::format_safetensors_header(header);
  file.append(std::as_bytes(std::span(room)));
  for (const auto* source : sorted) header.metadata[kChecksumPrefix + source->name] = write_one(file, *source);
  const auto filled = detail::format_safetensors_header(header);
  file.write_at(0, std::as_bytes(std::span(filled)));
  file.finish();
}

}  // namespace

std::string_view safetensors_dtype(at::ScalarType type) {
  const auto* found = std::ranges::find(kTypes, type, &std::pair<std::string_view, at::ScalarType>::second);
  return found == std::end(kTypes) ? std::string_view() : found->first;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSource> sources;
  for (const auto& named : tensors) sources.push_back(source_of(named));
  write_safetensors(path, std::span<const TensorSource>(sources), metadata);
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                       const std::map<std::string, std::string>& metadata) {
  const auto sorted = in_file_order(sources);
  const auto header = layout_of(sorted, metadata);
  OutputFile file(path);
  write_all(file, sorted, header);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  std::vector<std::byte> prefix(std::min<uint64_t>(file_.size(), 8));
  file_.read_at(0, prefix);
  prefix.resize(detail::safetensors_header_bytes(prefix, file_.size(), path.string()));
  file_.read_at(0, prefix);
  header_ = detail::parse_safetensors_header(prefix, file_.size(), path.string());
  for (size_t i = 0; i < header_.entries.size(); ++i) places_[header_.entries[i].name] = i;
  Checksum checksum;
  checksum.update(prefix);
  header_checksum_ = checksum.hex();
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& entry : header_.entries) names.push_back(entry.name);
  return names;
}

const detail::SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    throw DataError(quote(file_.path().string()) + ": tensor " + quote(name) + " is missing, wanted one of the " +
                    std::to_string(places_.size()) + " that the file has");
  }
  return header_.entries[found->second];
}

at::ScalarType SafetensorsFile::dtype(const std::string& name) const {
  const auto wanted = entry(name).dtype;
  for (const auto& [known, type] : kTypes) {
    if (known == wanted) return type;
  }
  throw DataError(quote(file_.path().string()) + ": tensor " + quote(name) + " dtype is " + std::string(wanted) +
                      ", wanted one that libtorch has",
                  "convert it with the program that wrote it");
}

const std::vector<int64_t>& SafetensorsFile::shape(const std::string& name) const { return entry(name).shape; }

void SafetensorsFile::check(const detail::SafetensorsEntry& entry, const std::string& found, bool required) const {
  const auto given = header_.metadata.find(kChecksumPrefix + entry.name);
  const std::string wanted = given == header_.metadata.end() ? "" : given->second;
  if (found == wanted || (wanted.empty() && !required)) return;
  throw DataError(quote(file_.path().string()) + ": tensor " + quote(entry.name) + " has checksum " + found +
                      ", wanted " + (wanted.empty() ? "one in the metadata" : quote(wanted)),
                  "its bytes are damaged, use another copy (a program that changes tensors must drop tandem.xxh3.*)");
}

/// Reads the tensor's bytes once, in order. Those from `first` on go to `target`; the others pass through a buffer.
void SafetensorsFile::scan(const detail::SafetensorsEntry& place, uint64_t first, std::span<std::byte> target,
                           const Demands& demands) const {
  const uint64_t size = place.end - place.begin, last = first + target.size();
  std::vector<std::byte> buffer;
  Checksum checksum;
  bool is_finite = true;
  for (uint64_t at = 0, end = 0; at < size; at = end) {
    const bool inside = at >= first && at < last;
    end = std::min(at + kHashedAtOnce, inside ? last : at < first ? std::min(first, size) : size);
    if (!inside) buffer.resize(kHashedAtOnce);
    const auto piece = inside ? target.subspan(at - first, end - at) : std::span(buffer).first(end - at);
    file_.read_at(header_.data_begin + place.begin + at, piece);
    checksum.update(piece);
    if (demands.finite) is_finite = is_finite && all_finite(numbers_in(piece, dtype(place.name)));
  }
  check(place, checksum.hex(), demands.checksum);
  if (is_finite) return;
  throw NonFiniteError(quote(file_.path().string()) + ": tensor " + quote(place.name) +
                       " holds inf or NaN, wanted finite numbers");
}

void SafetensorsFile::check_bools(const std::string& name, std::span<const std::byte> bytes) const {
  if (dtype(name) != at::kBool || std::ranges::all_of(bytes, [](std::byte value) { return value <= std::byte{1}; })) {
    return;
  }
  throw DataError(quote(file_.path().string()) + ": tensor " + quote(name) +
                  " has a byte above 1, wanted 0 or 1 for BOOL");
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const auto& place = entry(name);
  const auto tensor = at::empty(place.shape, at::TensorOptions().dtype(dtype(name)));
  const std::span bytes(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
  scan(place, 0, bytes, {});
  check_bools(name, bytes);
  return tensor;
}

void SafetensorsFile::read(const std::string& name, uint64_t first, std::span<std::byte> target) const {
  const auto& place = entry(name);
  const uint64_t size = place.end - place.begin;
  TORCH_CHECK_VALUE(first <= size && target.size() <= size - first, "tensor ", quote(name), " has ", size,
                    " bytes, wanted ", target.size(), " from byte ", first);
  if (header_.metadata.contains(kChecksumPrefix + name)) {
    scan(place, first, target, {});
  } else {
    file_.read_at(header_.data_begin + place.begin + first, target);
  }
  check_bools(name, target);
}

void SafetensorsFile::read_sound(const std::string& name, uint64_t first, std::span<std::byte> target) const {
  scan(entry(name), first, target, {.checksum = true, .finite = true});
  check_bools(name, target);
}

void SafetensorsFile::verify() const {
  for (const auto& entry : header_.entries) scan(entry, 0, {}, {.checksum = true});
}

}  // namespace tandem::storage
