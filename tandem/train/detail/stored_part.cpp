#include "tandem/train/detail/stored_part.h"

#include <c10/util/Exception.h>

#include <charconv>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"

namespace tandem::train::detail {
namespace {

using parallel::Split;

const std::string kRows = "tandem.rows.", kPart = "tandem.part.";

/// Reads `count` numbers of 0 or more, separated by `separator`; nullopt if `text` is anything else.
std::optional<std::vector<int64_t>> numbers_in(std::string_view text, char separator, size_t count) {
  std::vector<int64_t> numbers(count);
  const char *at = text.data(), *end = text.data() + text.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && (at == end || *at++ != separator)) return {};
    const auto read = std::from_chars(at, end, numbers[i]);
    if (read.ec != std::errc() || numbers[i] < 0) return {};
    at = read.ptr;
  }
  return at == end ? std::optional(numbers) : std::nullopt;
}

std::optional<std::vector<Split>> parse_part(std::string_view text) {
  std::vector<Split> splits;
  while (true) {
    const auto end = text.find(';');
    const auto numbers = numbers_in(text.substr(0, end), ':', 4);
    if (!numbers) return {};
    splits.push_back({(*numbers)[0], (*numbers)[1], (*numbers)[2], (*numbers)[3]});
    if (end == std::string_view::npos) return splits;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::vector<Split>> parse_rows(std::string_view text) {
  const auto numbers = numbers_in(text, ',', 3);
  if (!numbers) return {};
  return std::vector<Split>{{0, (*numbers)[0], (*numbers)[1], (*numbers)[2]}};
}

bool fits(const std::vector<Split>& splits, at::IntArrayRef sizes) {
  try {
    parallel::check_placement("", {.splits = splits}, sizes);
    return true;
  } catch (const c10::ValueError&) {
    return false;
  }
}

}  // namespace

std::string name_of_part(const std::string& name, int rank, int place) {
  char suffix[24];
  std::snprintf(suffix, sizeof suffix, ".rank_%04d", rank);
  return name + suffix + (place == 0 ? "" : "." + std::to_string(place));
}

std::optional<std::string> name_of_whole(const std::string& stored, int rank) {
  const auto suffix = name_of_part("", rank);
  const auto at = stored.rfind(suffix);
  if (at == std::string::npos) return {};
  const auto behind = std::string_view(stored).substr(at + suffix.size());
  if (!behind.empty() && (behind[0] != '.' || !numbers_in(behind.substr(1), ' ', 1))) return {};
  return stored.substr(0, at);
}

void put_splits(std::map<std::string, std::string>& metadata, const std::string& stored,
                const std::vector<Split>& splits) {
  if (splits.size() == 1 && splits[0].dim == 0) {
    const auto& rows = splits[0];
    metadata[kRows + stored] =
        std::to_string(rows.first) + "," + std::to_string(rows.count) + "," + std::to_string(rows.total);
    return;
  }
  std::string text;
  for (const auto& split : splits) {
    text += (text.empty() ? "" : ";") + std::to_string(split.dim) + ":" + std::to_string(split.first) + ":" +
            std::to_string(split.count) + ":" + std::to_string(split.total);
  }
  if (!text.empty()) metadata[kPart + stored] = text;
}

std::vector<Split> splits_of(const storage::SafetensorsFile& file, const std::string& stored) {
  const auto& metadata = file.metadata();
  if (const auto rows = metadata.find(kRows + stored); rows != metadata.end()) {
    const auto splits = parse_rows(rows->second);
    if (splits && fits(*splits, file.shape(stored))) return *splits;
    throw DataError(rows->first + " is " + quote(rows->second) +
                    ", wanted first,count,total with the tensor's own number of rows as count");
  }
  if (const auto part = metadata.find(kPart + stored); part != metadata.end()) {
    const auto splits = parse_part(part->second);
    if (splits && fits(*splits, file.shape(stored))) return *splits;
    throw DataError(part->first + " is " + quote(part->second) +
                    ", wanted dim:first:count:total;... with the tensor's own sizes as counts");
  }
  return {};
}

}  // namespace tandem::train::detail
