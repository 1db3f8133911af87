#pragma once
#include <array>
#include <string_view>

namespace tandem {

/// The part of a training step that the calling thread is in.
enum class Phase { forward, backward, optimizer };
inline constexpr std::array<std::string_view, 3> kPhaseNames = {"forward", "backward", "optimizer"};

Phase current_phase();

/// Sets the calling thread's phase while the object lives. The gradients of the communication operators set `backward`
/// themselves.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Phase before_;
};

}  // namespace tandem
