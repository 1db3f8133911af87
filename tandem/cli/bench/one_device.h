#pragma once
#include <map>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tandem/job/job.h"

// Training as a textbook has it, on one device: autograd of the whole batch, cross entropy of whole logits, SGD with
// momentum; no weight decay, no micro-batch. What every parallel plan is judged by.
namespace tandem::cli {

using Named = std::map<std::string, Tensor>;

struct OneDevice {
  std::vector<double> losses;
  Named first_weights, gradients, weights;  // gradients of the first step; weights after the last
};

/// A softmax over products of features and weights, or over scaled cosines, with a margin.
struct PlainHead {
  double scale = 0;                                           // of cosines; 0: products
  Tensor (*margin)(const Tensor& cosine, int64_t step) = {};  // what stands for a target's cosine; null: itself
  double smoothing = 0;
  bool has_bias = false;
};

struct PlainSteps {
  int64_t count = 1;
  double rate = 0, momentum = 0;
  PlainHead head = {};
};

OneDevice train_plainly(job::Job job, const PlainSteps& steps);

/// A search (job.search): before each step of the weights Adam moves the alphas, by the gradient of the validation loss
/// after a step of the weights. It has a product of second derivatives, by two backward passes. Source: Liu, Simonyan,
/// Yang 2019 (arXiv:1806.09055), equation 7.
OneDevice search_plainly(job::Job job, const PlainSteps& steps);

}  // namespace tandem::cli
