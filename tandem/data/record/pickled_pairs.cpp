#include "tandem/data/record/pickled_pairs.h"

#include <string>

#include "tandem/base/error.h"
#include "tandem/storage/pickle_reader.h"

namespace tandem::data {
namespace {

[[noreturn]] void fail(std::string_view name, const std::string& fault) {
  throw DataError("'" + std::string(name) + "': " + fault,
                  "write it with pickle.dump((list of encoded images, list of bool), file)");
}

const std::vector<storage::PickleValue>& sequence(const storage::Pickle& pickle, const storage::PickleValue& value,
                                                  std::string_view name, const std::string& what) {
  if (value.kind != storage::PickleKind::list && value.kind != storage::PickleKind::tuple) {
    fail(name, what + " is " + name_of(value.kind) + ", wanted a list");
  }
  return pickle.sequences[value.number];
}

std::string indexed(const char* list, size_t index, storage::PickleKind found) {
  return std::string(list) + "[" + std::to_string(index) + "] is " + name_of(found);
}

}  // namespace

std::span<const std::byte> plain_bytes(const PickledBytes& bytes, std::vector<std::byte>& decoded) {
  if (!bytes.is_encoded) return bytes.stored;
  decoded.clear();
  for (auto rest = bytes.stored; !rest.empty();) {
    const size_t length = storage::latin1_length(rest);
    if (length == 0) throw DataError("is not UTF-8 of code points below 256");
    decoded.push_back(length == 1 ? rest[0] : rest[0] << 6 | (rest[1] & std::byte{0x3F}));
    rest = rest.subspan(length);
  }
  return decoded;
}

PickledPairs parse_pickled_pairs(std::span<const std::byte> file, std::string_view name) {
  const auto pickle = storage::read_pickle(file, name);
  const auto& parts = sequence(pickle, pickle.root, name, "the pickle");
  if (parts.size() != 2) fail(name, "the pickle is of " + std::to_string(parts.size()) + " values, wanted two lists");
  const auto& images = sequence(pickle, parts[0], name, "images");
  const auto& same = sequence(pickle, parts[1], name, "same");
  if (same.empty() || images.size() != same.size() * 2) {
    fail(name, "images and same are lists of " + std::to_string(images.size()) + " and " + std::to_string(same.size()) +
                   ", wanted two images a pair, and at least one pair");
  }
  PickledPairs pairs;
  for (const auto& [kind, bytes, number] : images) {
    if (kind != storage::PickleKind::bytes && kind != storage::PickleKind::encoded_bytes) {
      fail(name, indexed("images", pairs.images.size(), kind) + ", wanted bytes");
    }
    pairs.images.push_back({bytes, kind == storage::PickleKind::encoded_bytes});
  }
  for (const auto& flag : same) {
    if (flag.kind != storage::PickleKind::boolean)
      fail(name, indexed("same", pairs.same.size(), flag.kind) + ", wanted a bool");
    pairs.same.push_back(flag.number != 0);
  }
  return pairs;
}

}  // namespace tandem::data
