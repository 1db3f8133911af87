#include "tandem/base/phase.h"

namespace tandem {
namespace {

thread_local Phase phase_of_thread = Phase::forward;

}  // namespace

Phase current_phase() { return phase_of_thread; }

PhaseScope::PhaseScope(Phase phase) : before_(phase_of_thread) { phase_of_thread = phase; }

PhaseScope::~PhaseScope() { phase_of_thread = before_; }

}  // namespace tandem
