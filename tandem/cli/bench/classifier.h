#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::cli {

/// One step of a CosFace classifier: forward, backward and SGD's update with momentum and weight decay.
struct ClassifierBench {
  int64_t classes = 0, dim = 512, batch = 0;
  int ranks = 1;
  std::string form = "fused";  // fused: update in backward; sharded: gradient, then update
  bool bf16 = false;           // products in bfloat16
  int64_t block = 0;           // classes of a block; 0: as many as a core's cache holds
  int64_t keep_bytes = 128 << 20;
  std::vector<std::string> peers;  // of bench/classifier/peers.py
  int rounds = 5;
};

struct PeerResult {
  std::string name;
  double seconds = 0;
  int64_t extra_bytes = 0;  // peak beyond weights and momentum, of all ranks together
  double speedup = 0;       // median over the rounds of its time divided by ours
};

struct ClassifierResult {
  ClassifierBench bench;
  double seconds = 0, floor_seconds = 0;  // floor: the three GEMMs alone, in the same run
  int64_t extra_bytes = 0;
  std::vector<PeerResult> peers;
  std::vector<std::string> missing;  // peers that did not start or did not stay: they have no result
};

/// Measures Tandem and each peer in turn, in one run; returns medians.
ClassifierResult bench_classifier(const ClassifierBench& bench);

std::vector<std::string> classifier_peers();

}  // namespace tandem::cli
