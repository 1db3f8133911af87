#include "tandem/train/checkpoint_reader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::train {

std::string name_of_part(const std::string& name, int rank) {
  char suffix[24];
  std::snprintf(suffix, sizeof suffix, ".rank_%04d", rank);
  return name + suffix;
}

namespace {

void check_like(const storage::SafetensorsFile& file, const std::string& stored, const Tensor& target,
                at::IntArrayRef shape) {
  if (file.dtype(stored) == target.scalar_type() && file.shape(stored) == shape.vec()) return;
  std::ostringstream text;
  text << "tensor " << quote(stored) << " is " << file.dtype(stored) << " " << at::IntArrayRef(file.shape(stored))
       << ", wanted " << target.scalar_type() << " " << shape;
  throw SettingsError(text.str());
}

/// Calls `read` with the target's own memory, or with the memory of a temporary tensor that is then copied to the
/// target.
template <class Read>
void fill(const Tensor& target, const Read& read) {
  const at::NoGradGuard no_grad;
  const bool is_plain = target.is_cpu() && target.is_contiguous() && !target.is_conj() && !target.is_neg();
  const auto place = is_plain ? target.detach() : at::empty(target.sizes(), at::TensorOptions(target.scalar_type()));
  read(std::span(static_cast<std::byte*>(place.mutable_data_ptr()), place.nbytes()));
  if (!is_plain) target.detach().copy_(place);
}

}  // namespace

CheckpointReader::CheckpointReader(const CheckpointStore& store, int64_t step) : manifest_(store.manifest(step)) {
  for (int rank = 0; rank < manifest_.world; ++rank) add_file(store, rank);
  check_parts();
}

void CheckpointReader::add_file(const CheckpointStore& store, int rank) {
  files_.push_back(store.open_rank(manifest_.step, rank));
  const auto &found = files_.back().header_checksum(), &wanted = manifest_.files[rank].checksum;
  if (found != wanted) {
    throw DataError(storage::rank_file_name(rank) + " has checksum " + found + ", wanted " + wanted);
  }
  const auto suffix = name_of_part("", rank);
  for (const auto& name : files_.back().names()) {
    const auto rows = rows_of(files_.back(), name);
    if (!rows) continue;
    if (!name.ends_with(suffix)) {
      throw DataError("tensor " + quote(name) + " of " + storage::rank_file_name(rank) +
                      " has rows and no name that ends with " + suffix);
    }
    parts_[name.substr(0, name.size() - suffix.size())].push_back({rank, *rows});
  }
}

/// The parts are in rank order, so each part must begin where the part before it ends.
void CheckpointReader::check_parts() const {
  for (const auto& [name, parts] : parts_) {
    int64_t next = 0;
    for (const auto& part : parts) {
      if (part.rows.first != next || part.rows.total != parts[0].rows.total) {
        throw DataError("tensor " + quote(name) + " has rows from " + std::to_string(part.rows.first) + " in " +
                        storage::rank_file_name(part.rank) + ", wanted them from " + std::to_string(next));
      }
      next += part.rows.count;
    }
    if (next != parts[0].rows.total) {
      throw DataError("tensor " + quote(name) + " has " + std::to_string(next) + " rows in all files, wanted " +
                      std::to_string(parts[0].rows.total));
    }
  }
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, parts] : parts_) names.push_back(name);
  for (const auto& name : files_[0].names()) {
    if (!rows_of(files_[0], name)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::optional<int64_t> CheckpointReader::split_rows(const std::string& name) const {
  const auto found = parts_.find(name);
  return found == parts_.end() ? std::nullopt : std::optional(found->second[0].rows.total);
}

const std::vector<CheckpointReader::Part>& CheckpointReader::parts_of(const std::string& name) const {
  const auto found = parts_.find(name);
  if (found == parts_.end()) throw DataError("tensor " + quote(name) + " is not split in this checkpoint");
  return found->second;
}

Tensor CheckpointReader::read(const std::string& name) const {
  const auto rows = split_rows(name);
  return rows ? read_rows(name, 0, *rows) : files_[0].read(name);
}

void CheckpointReader::check_rows(const std::string& name, int64_t first, int64_t count) const {
  const int64_t total = parts_of(name)[0].rows.total;
  if (first >= 0 && count >= 0 && count <= total - first) return;
  throw DataError("tensor " + quote(name) + " has " + std::to_string(total) + " rows, wanted rows " +
                  std::to_string(first) + ".." + std::to_string(first + count));
}

void CheckpointReader::give_rows(const std::string& name, int64_t first, int64_t count,
                                 const std::function<void(const Tensor&)>& take) const {
  for (const auto& [rank, rows] : parts_of(name)) {
    const auto begin = std::max(first, rows.first), end = std::min(first + count, rows.first + rows.count);
    if (begin >= end) continue;
    const auto part = files_[rank].read(name_of_part(name, rank));
    take(part.narrow(0, begin - rows.first, end - begin));
  }
}

void CheckpointReader::read_into(const std::string& name, const Tensor& target) const {
  if (split_rows(name) || !files_[0].contains(name)) {
    throw SettingsError("tensor " + quote(name) + " is " + (split_rows(name) ? "split" : "missing") +
                        ", wanted a whole one");
  }
  check_like(files_[0], name, target, target.sizes());
  fill(target, [&](std::span<std::byte> bytes) { files_[0].read_sound(name, 0, bytes); });
}

void CheckpointReader::read_rows_into(const std::string& name, const RowRange& rows, const Tensor& target) const {
  const auto total = split_rows(name);
  if (total != rows.total) {
    throw SettingsError("tensor " + quote(name) + " has " + (total ? std::to_string(*total) : "no") +
                        " rows over the ranks, wanted " + std::to_string(rows.total));
  }
  for (const auto& part : parts_of(name)) {
    auto shape = target.sizes().vec();
    shape[0] = part.rows.count;
    check_like(files_[part.rank], name_of_part(name, part.rank), target, shape);
  }
  fill(target, [&](std::span<std::byte> bytes) {
    const uint64_t row_bytes = rows.count == 0 ? 0 : bytes.size() / rows.count;
    for (const auto& part : parts_of(name)) {
      const auto begin = std::max(rows.first, part.rows.first);
      const auto end = std::min(rows.first + rows.count, part.rows.first + part.rows.count);
      if (begin >= end) continue;
      files_[part.rank].read_sound(name_of_part(name, part.rank), (begin - part.rows.first) * row_bytes,
                                   bytes.subspan((begin - rows.first) * row_bytes, (end - begin) * row_bytes));
    }
  });
}

void CheckpointReader::verify_others(const std::set<std::string>& read, int rank, int size) const {
  for (int file = rank; file < manifest_.world; file += size) {
    const auto suffix = name_of_part("", file);
    for (const auto& stored : files_[file].names()) {
      const bool is_part = stored.ends_with(suffix) && parts_.contains(stored.substr(0, stored.size() - suffix.size()));
      const auto name = is_part ? stored.substr(0, stored.size() - suffix.size()) : stored;
      const bool is_read = read.contains(name) && (is_part || file == 0);
      if (!is_read) files_[file].read_sound(stored, 0, {});
    }
  }
}

storage::TensorSource CheckpointReader::source(const std::string& name) const {
  if (const auto rows = split_rows(name)) return source_of_rows(name, 0, *rows, name);
  const auto& shared = files_[0];
  return {name, shared.dtype(name), shared.shape(name), [&shared, name](const auto& take) { take(shared.read(name)); }};
}

storage::TensorSource CheckpointReader::source_of_rows(const std::string& name, int64_t first, int64_t count,
                                                       const std::string& as) const {
  check_rows(name, first, count);
  const auto one = name_of_part(name, parts_of(name)[0].rank);
  auto shape = files_[parts_of(name)[0].rank].shape(one);
  shape[0] = count;
  return {as, files_[parts_of(name)[0].rank].dtype(one), shape,
          [this, name, first, count](const auto& take) { give_rows(name, first, count, take); }};
}

Tensor CheckpointReader::read_rows(const std::string& name, int64_t first, int64_t count) const {
  const auto source = source_of_rows(name, first, count, name);
  Tensor result;
  int64_t at = 0;
  source.give([&](const Tensor& piece) {
    if (piece.size(0) == count) {
      result = piece;
      return;
    }
    if (!result.defined()) result = at::empty(source.shape, piece.options());
    result.narrow(0, at, piece.size(0)).copy_(piece);
    at += piece.size(0);
  });
  return result.defined() ? result : at::empty(source.shape, source.type);
}

}  // namespace tandem::train
