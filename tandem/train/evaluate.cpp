#include "tandem/train/evaluate.h"

#include <ATen/ATen.h>

#include <array>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"
#include "tandem/train/batches.h"

namespace tandem::train {

std::span<const Score> metrics() {
  static const std::vector<Score> all = {{"top1", "top-1", 0, ScoreUnit::fraction, Better::higher},
                                         {"top5", "top-5", 0, ScoreUnit::fraction, Better::higher},
                                         {"loss", "loss", 0, ScoreUnit::plain, Better::lower}};
  return all;
}

Scores evaluate(Task& task, data::Loader& loader, int64_t num_classes, comm::ProcessGroup& data, const Tick& tick,
                const Answered& answered) {
  TORCH_CHECK_VALUE(num_classes > 0, "evaluate: num_classes is ", num_classes, ", wanted 1 or more");
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::activations);
  task.set_training(false);
  double right1 = 0, right5 = 0, loss = 0;
  int64_t samples = 0, done = 0;
  const auto batches = all_batches(loader);
  if (tick) tick(0, batches.count);
  const auto use = [&](const data::Batch& batch, const Task::Answers& answers) {
    const auto hits = answers.best.classes.eq(batch.labels.unsqueeze(1));
    right1 += hits.select(1, 0).sum().item<double>();
    right5 += hits.sum().item<double>();
    loss += answers.loss.item<double>() * static_cast<double>(batch.global_size);
    samples += batch.global_size;
    if (answered) answered(batch, answers.best, batches.sizes(batch));
    if (tick) tick(++done, batches.count);
  };
  task.answer(batches, Task::Question::scores, std::min<int64_t>(5, num_classes), use);
  task.set_training(true);
  std::vector<double> own = {right1, right5};
  const bool is_term = !task.summed_along().empty();
  if (is_term) own.push_back(loss);
  const auto sums = at::tensor(own, at::kDouble);
  comm::all_reduce_(sums, data);
  if (is_term) loss = sums[2].item<double>();
  const double count = std::max<double>(1, static_cast<double>(samples));
  const std::array values = {sums[0].item<double>() / count, sums[1].item<double>() / count, loss / count};
  Scores scores{{metrics().begin(), metrics().end()}, samples};
  for (size_t i = 0; i < values.size(); ++i) scores.list[i].value = values[i];
  return scores;
}

}  // namespace tandem::train
