// libFuzzer: a manifest or an index is rejected with DataError, or a manifest is written again byte for byte.
#include <cstdlib>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/storage/manifest.h"

using namespace tandem::storage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (format_manifest(parse_manifest(text, "fuzz")) != text) std::abort();
  } catch (const tandem::DataError&) {
  }
  try {
    for (const auto& [tensor, file] : parse_shard_index(text, "fuzz")) {
      if (file.find('/') != std::string::npos) std::abort();
    }
  } catch (const tandem::DataError&) {
  }
  return 0;
}
