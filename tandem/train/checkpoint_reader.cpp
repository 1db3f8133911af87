#include "tandem/train/checkpoint_reader.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::train {

std::string name_of_part(const std::string& name, int rank) {
  char suffix[16];
  std::snprintf(suffix, sizeof suffix, ".rank_%04d", rank);
  return name + suffix;
}

CheckpointReader::CheckpointReader(const CheckpointStore& store, int64_t step) : manifest_(store.manifest(step)) {
  for (int rank = 0; rank < manifest_.world; ++rank) {
    files_.push_back(store.open_rank(step, rank));
    add_file(rank);
  }
  check_parts();
}

void CheckpointReader::add_file(int rank) {
  const auto suffix = name_of_part("", rank);
  for (const auto& name : files_.back().names()) {
    const auto rows = rows_of(files_.back(), name);
    if (!rows) continue;
    if (!name.ends_with(suffix)) {
      throw DataError("tensor " + quote(name) + " of " + rank_file_name(rank) +
                      " has rows and no name that ends with " + suffix);
    }
    parts_[name.substr(0, name.size() - suffix.size())].push_back({rank, *rows});
  }
}

/// The parts stand in rank order, so that they must follow each other.
void CheckpointReader::check_parts() const {
  for (const auto& [name, parts] : parts_) {
    int64_t next = 0;
    for (const auto& part : parts) {
      if (part.rows.first != next || part.rows.total != parts[0].rows.total) {
        throw DataError("tensor " + quote(name) + " has rows from " + std::to_string(part.rows.first) + " in " +
                        rank_file_name(part.rank) + ", wanted them from " + std::to_string(next));
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

TensorSource CheckpointReader::source(const std::string& name) const {
  if (const auto rows = split_rows(name)) return source_of_rows(name, 0, *rows, name);
  const auto& shared = files_[0];
  return {name, shared.dtype(name), shared.shape(name), [&shared, name](const auto& take) { take(shared.read(name)); }};
}

TensorSource CheckpointReader::source_of_rows(const std::string& name, int64_t first, int64_t count,
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
