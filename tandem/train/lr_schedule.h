#pragma once
#include <cstdint>
#include <vector>

namespace tandem::train {

enum class ScheduleKind { onecycle, cosine, step, constant };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::onecycle;
  double lr = 0.1;                  // the highest learning rate
  double least = 0;                 // cosine: to which it falls
  int64_t every = 1;                // cosine: steps between two changes of it; 1: each step has its own
  int64_t steps = 0;                // of the whole run
  double warmup = 0.3;              // fraction of steps in which the rate rises; from lr / 25 (onecycle) or 0 (others)
  std::vector<int64_t> milestones;  // step: at these steps the rate is multiplied by gamma
  double gamma = 0.1;
};

/// The learning rate of a step, counted from 0.
///   onecycle  cosine up from lr / 25, cosine down to lr / 250,000; equals torch.optim.lr_scheduler.OneCycleLR
///   cosine    linear up, then cosine down to `least`
///   step      linear up, then lr * gamma^(milestones passed)
///   constant  linear up, then lr
/// Source: Smith and Topin 2018 (arXiv:1708.07120); Loshchilov and Hutter 2017 (arXiv:1608.03983).
double learning_rate(const ScheduleOptions& options, int64_t step);

}  // namespace tandem::train
