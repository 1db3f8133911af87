#pragma once
#include <optional>

#include "tandem/rendezvous/detail/variables.h"

namespace tandem::rendezvous::detail {

/// This process as a task of srun; nullopt for a batch script, a shell of salloc or of `srun --pty`, which have the
/// variables of a task too, and outside SLURM. Throws SettingsError if it cannot be told whether the other tasks run.
std::optional<Claim> claim_of_slurm(const Variables& variables);

/// The first host of the job; "" outside SLURM.
std::string first_host_of_slurm(const Variables& variables);

}  // namespace tandem::rendezvous::detail
