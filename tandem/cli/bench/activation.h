#pragma once
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Forward and backward of an operation on one shape, beside a peer's in the same run.
struct ActivationCase {
  std::string name, peer;
  std::vector<int64_t> shape;
  double seconds = 0, peer_seconds = 0;         // medians
  int64_t kept_bytes = 0, peer_kept_bytes = 0;  // after forward, with what the next layer keeps
  int64_t peak_bytes = 0, peer_peak_bytes = 0;  // in backward
  double speedup = 0;                           // median over the rounds of peer_seconds / seconds
  double bytes_ratio() const { return static_cast<double>(kept_bytes) / static_cast<double>(peer_kept_bytes); }
};

/// Error of in-place batch normalisation in float32: the largest of a channel's gradient of the weight against float64,
/// over the largest gradient.
struct AbnErrorCase {
  std::string name;
  double weight = 0;                                  // |weight| of all channels; biases are drawn from -1 .. 1
  double form_one = 0, form_two = 0, batch_norm = 0;  // batch_norm: ATen's, in float32
};

struct ActivationBench {
  bool quick = false;  // fewer and smaller shapes
  int rounds = 9;
  c10::DeviceType device = c10::DeviceType::CPU;
};

struct ActivationResult {
  std::vector<ActivationCase> cases;
  std::vector<AbnErrorCase> errors;
};

/// Measures each operation and its peer in turn, in one run, and the errors.
ActivationResult bench_activation(const ActivationBench& bench);

/// `tandem bench activation`: reads its settings, prints and writes the result.
int run_activation(const Arguments& arguments);
settings::Schema activation_schema();

}  // namespace tandem::cli
