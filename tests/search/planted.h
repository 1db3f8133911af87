#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tandem/search/architect.h"

// Searches whose answer is known, each on one mixed edge.
namespace tandem::search::planted {

/// The shares of the operations after a search.
struct Outcome {
  std::vector<std::string_view> operations;
  std::vector<double> shares;

  std::string_view first() const;

  /// The share of an operation less the best share of another one.
  double margin(std::string_view operation) const;
};

struct SearchOptions {
  double gain = 10;  // of the features, before the classifier
  bool has_random_labels = false;
  int order = 2;
  Product product = Product::exact;
  int64_t times = 1;        // as large batches, at a rate as much higher, over as much fewer steps
  double alphas_times = 1;  // the rate of the alphas
  double warmup = 0;        // share of the steps in which both rates rise from 0
};

/// The operations that can be planted: dil_conv_5x5, max_pool_3x3, avg_pool_3x3, skip_connect.
std::vector<std::string_view> planted_operations();

/// Among the eight operations of DARTS, on images of 16 channels in four groups. A bit of each group is known best by
/// one operation, and the label is the bit of `operation`: the images are the same whichever it is.
///
///   images ── mixed edge ── norm ── ReLU ── mean over the image ── times gain ── linear, 2 classes
///
/// 150 steps of batches of 32, over 1,024 training and 1,024 validation images.
Outcome search_planted(std::string_view operation, uint64_t seed, const SearchOptions& options = {});

/// Among max_pool_3x3 and skip_connect. The pooling shows a shortcut that is good in training, and nearly worthless in
/// validation: the gradient as the weights are is for it, that after a step against it, because with the shortcut the
/// weights do not learn what holds.
Outcome judge_order(uint64_t seed, int order, Product product = Product::exact);

}  // namespace tandem::search::planted
