#pragma once
#include <filesystem>

#include "tandem/storage/safetensors.h"

namespace tandem::storage {

/// Writes a tensor as numpy.load() opens it, in C order, and waits until it is on the disk. The source's name is not
/// stored. Memory: one piece. On failure no file of that name remains. Throws IoError, c10::TypeError (an element type
/// that NumPy does not have), what the source throws, and c10::ValueError if its pieces do not make up its shape.
/// Source: NumPy, numpy.lib.format, version 1.0.
void write_npy(const std::filesystem::path& path, const TensorSource& source);

}  // namespace tandem::storage
