#include "tandem/kernels/detail/abn_entries.inc"

namespace tandem::kernels {

TANDEM_ABN_OF_EVERY_TYPE(uint16_t)

}  // namespace tandem::kernels
