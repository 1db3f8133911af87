#include "tandem/models/network/flat.h"

#include <c10/util/Exception.h>

namespace tandem::models {

Flat::Flat(const ModelOptions& options) : Backbone("Flat", options, options.embedding) {
  if (!holds_next_block()) return;
  add_block("flat", {}, [channels = options.channels, dim = options.embedding](const Tensor& images) {
    check_images(images, channels);
    const int64_t numbers = images.size(1) * images.size(2) * images.size(3);
    TORCH_CHECK_VALUE(numbers == dim, "model none: an image has ", numbers, " numbers, wanted the embedding's ", dim);
    return images.reshape({images.size(0), dim});
  });
}

}  // namespace tandem::models
