#include <torch/headeronly/version.h>

#include "tandem/cli/program.h"

namespace tandem::cli {

std::string version() { return TANDEM_VERSION; }
std::string torch_version() { return TORCH_VERSION; }

}  // namespace tandem::cli
