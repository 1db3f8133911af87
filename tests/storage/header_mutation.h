#pragma once
#include <cstdint>
#include <string>

namespace tandem::storage {

/// A safetensors file of `json` as it stands, and so many bytes of data.
std::string safetensors_bytes(const std::string& json, size_t data_bytes);

/// The seed-th file of an endless series: a sound one with none to four things changed (bytes, JSON tokens, numbers,
/// length field, cuts).
std::string mutated_file(uint64_t seed);

}  // namespace tandem::storage
