// libFuzzer: any bytes are rejected with DataError or come back equal when they are written again.
#include <cstdlib>
#include <string>

#include "tandem/base/error.h"
#include "tandem/storage/detail/safetensors_header.h"

using namespace tandem::storage::detail;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const auto header = parse_safetensors_header(file, size, "fuzz");
    std::string again = format_safetensors_header(header);
    const auto file_size = again.size() + size - header.data_begin;
    auto second = parse_safetensors_header(std::as_bytes(std::span(again)), file_size, "fuzz");
    second.data_begin = header.data_begin;
    if (second != header) std::abort();
  } catch (const tandem::DataError&) {
  }
  return 0;
}
