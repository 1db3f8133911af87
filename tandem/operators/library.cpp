#include <ATen/core/enum_tag.h>
#include <torch/library.h>

#include "tandem/operators/detail/schemas.h"

TORCH_LIBRARY(tandem, library) {
  using namespace tandem::operators::detail;
  for (const char* schema :
       {kSwish, kSwishBackward, kAbn, kAbnForward, kAbnBackward, kMarginSoftmax, kMarginSoftmaxBackward}) {
    library.def(schema, {at::Tag::pt2_compliant_tag});
  }
}
