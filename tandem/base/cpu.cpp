#include "tandem/base/cpu.h"

#include <atomic>
#include <string>

#include "tandem/base/env.h"
#include "tandem/base/error.h"

namespace tandem::cpu {
namespace {

std::vector<Target> detected() {
#if defined(__x86_64__)
  std::vector<Target> targets = {Target::sse4};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  if (avx2) targets.push_back(Target::avx2);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    targets.push_back(Target::avx512);
  }
  return targets;
#else
  return {Target::neon};
#endif
}

Target wanted() {
  const auto text = env::get("TANDEM_CPU");
  if (!text) return available().back();
  std::string names;
  for (const auto target : available()) {
    if (*text == name(target)) return target;
    names += (names.empty() ? "" : ", ") + std::string(name(target));
  }
  throw SettingsError("environment variable TANDEM_CPU is '" + *text + "', this machine has: " + names);
}

std::atomic<Target>& current() {
  static std::atomic<Target> target = wanted();
  return target;
}

}  // namespace

const char* name(Target target) {
  switch (target) {
    case Target::sse4:
      return "sse4";
    case Target::avx2:
      return "avx2";
    case Target::avx512:
      return "avx512";
    case Target::neon:
      return "neon";
  }
  return "";
}

const std::vector<Target>& available() {
  static const auto targets = detected();
  return targets;
}

Target chosen() { return current().load(std::memory_order_relaxed); }
void choose(Target target) { current() = target; }

}  // namespace tandem::cpu
