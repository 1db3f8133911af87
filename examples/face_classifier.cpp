// A face classifier whose classes are split over the ranks, in two ways. Both gather the features and work out the
// scores of their own classes for all samples. Then either the scores travel, until each rank has all scores of its own
// samples (all_to_all), or two small messages do: the largest score of a sample, and its sum of exponentials beside the
// target's score. Loss and gradients are those of one device; what each way sends is told.
#include <ATen/ATen.h>

#include <cstdio>

#include "tandem/comm/collectives.h"
#include "tandem/comm/run_main.h"
#include "tandem/comm/world.h"
#include "tandem/layers/hybrid.h"
#include "tandem/layers/linear.h"

using namespace tandem;

constexpr int64_t kSamples = 22, kDim = 16, kClasses = 1000;

Tensor numbers(at::IntArrayRef shape, double phase) {
  return at::sin(at::arange(c10::multiply_integers(shape), at::kDouble) * 1.3 + phase).reshape(shape);
}

/// Of all samples, over their number, of which these are some: the ranks' losses add up to that of the batch.
Tensor mean_of(const Tensor& losses) { return losses.sum() / kSamples; }

/// scores: [samples of all ranks, classes of this one].
Tensor loss_of_travelling_scores(const Tensor& scores, const Tensor& targets, const layers::Division& samples,
                                 const layers::Division& classes) {
  const auto own = layers::to_data_parallel(scores, classes);  // [own samples, all classes]
  const auto own_targets = targets.narrow(0, samples.first(), samples.count());
  return mean_of(-at::log_softmax(own, 1).gather(1, own_targets.unsqueeze(1)));
}

Tensor loss_of_two_messages(const Tensor& scores, const Tensor& targets, const layers::Division& samples,
                            const layers::Division& classes) {
  auto& group = classes.group();
  const auto largest = comm::all_reduce(scores.detach().amax(1), group, comm::Reduce::max);
  const auto shifted = scores - largest.unsqueeze(1);
  const auto place = targets - classes.first();  // among this rank's classes, if it is one of them
  const auto is_here = place.ge(0).logical_and(place.lt(classes.count()));
  const auto of_target = shifted.gather(1, place.clamp(0, classes.count() - 1).unsqueeze(1)).squeeze(1) * is_here;
  const auto sums = comm::all_reduce(at::stack({shifted.exp().sum(1), of_target}), group);
  return mean_of((sums[0].log() - sums[1]).narrow(0, samples.first(), samples.count()));
}

using LossOf = Tensor (*)(const Tensor&, const Tensor&, const layers::Division&, const layers::Division&);

void compare(const char* way, LossOf loss_of, comm::ProcessGroup& group) {
  const auto all_x = numbers({kSamples, kDim}, 0), all_weight = numbers({kClasses, kDim}, 2);
  const auto targets = at::arange(kSamples, at::kLong) * 45 % kClasses;
  auto x_alone = all_x.clone().requires_grad_(), weight_alone = all_weight.clone().requires_grad_();
  const auto expected = at::cross_entropy_loss(at::matmul(x_alone, weight_alone.t()), targets);
  expected.backward();

  const layers::Division samples(group, kSamples), classes(group, kClasses);
  auto x = all_x.narrow(0, samples.first(), samples.count()).clone().requires_grad_();
  layers::ColumnLinear classifier(kDim, classes, {.bias = false, .copies = false, .gathers = false});
  auto weight = classifier.parameters()[0];
  weight.set_data(all_weight.narrow(0, classes.first(), classes.count()).clone());

  group.meter().reset();
  const auto scores = classifier.forward(comm::all_gather(x, group, 0, samples.counts()));
  const auto loss = loss_of(scores, targets, samples, classes);
  loss.backward();
  const auto sent = group.meter().counts();

  const auto sum = comm::all_reduce(loss.detach(), group);
  TORCH_CHECK(at::allclose(sum, expected, 1e-12, 1e-12), "the loss differs from that of one device");
  TORCH_CHECK(
      at::allclose(weight.grad(), weight_alone.grad().narrow(0, classes.first(), classes.count()), 1e-12, 1e-12),
      "the weights' gradient differs");
  TORCH_CHECK(at::allclose(x.grad(), x_alone.grad().narrow(0, samples.first(), samples.count()), 1e-12, 1e-12),
              "the features' gradient differs");
  if (group.rank() != 0) return;
  std::printf("%s: loss %.12f, as on one device; rank 0 sends\n", way, sum.item<double>());
  for (const auto& [operation, count] : sent) {
    std::printf("  %-15s %ld calls, %ld bytes\n", operation.c_str(), count.calls, count.bytes);
  }
}

void run() {
  comm::run_ranks(4, [](comm::ProcessGroup& group) {
    compare("scores travel", loss_of_travelling_scores, group);
    compare("two small messages", loss_of_two_messages, group);
  });
}

int main() { return comm::run_main(run); }
