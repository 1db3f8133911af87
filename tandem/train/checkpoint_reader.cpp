#include "tandem/train/checkpoint_reader.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/train/quote.h"

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

Tensor CheckpointReader::read_rows(const std::string& name, int64_t first, int64_t count) const {
  const auto& parts = parts_of(name);
  if (first < 0 || count < 0 || count > parts[0].rows.total - first) {
    throw DataError("tensor " + quote(name) + " has " + std::to_string(parts[0].rows.total) + " rows, wanted rows " +
                    std::to_string(first) + ".." + std::to_string(first + count));
  }
  Tensor result;
  for (const auto& [rank, rows] : parts) {
    const auto begin = std::max(first, rows.first), end = std::min(first + count, rows.first + rows.count);
    const bool is_last = rank == parts.back().rank;
    if (begin >= end && (result.defined() || !is_last)) continue;
    const auto part = files_[rank].read(name_of_part(name, rank));
    if (begin == rows.first && end - begin == rows.count && rows.count == count) return part;
    if (!result.defined()) {
      auto shape = part.sizes().vec();
      shape[0] = count;
      result = at::empty(shape, part.options());
    }
    if (begin < end)
      result.narrow(0, begin - first, end - begin).copy_(part.narrow(0, begin - rows.first, end - begin));
  }
  return result;
}

}  // namespace tandem::train
