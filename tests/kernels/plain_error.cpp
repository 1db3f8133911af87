#include "tandem/base/error.h"

// For programs without torch, which the library's own texts need.
namespace tandem {

Error::Error(ExitCode code, std::string fault, std::string remedy)
    : std::runtime_error(fault), code_(code), fault_(std::move(fault)), remedy_(std::move(remedy)), text_(fault_) {}

}  // namespace tandem
