#include "tandem/kernels/detail/abn_entries.inc"

namespace tandem::kernels {

TANDEM_ABN_OF_EVERY_TYPE(float)
TANDEM_ABN_OF_EVERY_TYPE(double)
TANDEM_ABN_OF_WIDE_TYPES(float)
TANDEM_ABN_OF_WIDE_TYPES(double)

}  // namespace tandem::kernels
