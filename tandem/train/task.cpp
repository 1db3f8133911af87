#include "tandem/train/task.h"

#include "tandem/base/error.h"
#include "tandem/train/divided_head.h"

namespace tandem::train {

std::vector<Parameter> Task::weights() const {
  auto all = parameters();
  for (auto& buffer : buffers()) all.push_back(std::move(buffer));
  return all;
}

void Task::run_apart() {
  throw SettingsError("staleness is more than 0 with a loss that needs the samples of all ranks",
                      "leave staleness out, or give each rank a loss of its own samples");
}

void Task::answer(const Batches& batches, Question question, int64_t k, const Use& use) {
  for (int64_t i = 0; i < batches.count; ++i) {
    const auto batch = batches.next();
    const auto sizes = batches.sizes(batch);
    if (question == Question::scores) {
      use(batch, evaluate(batch, k, sizes));
    } else if (question == Question::classes) {
      use(batch, {predict(batch, k, sizes), {}});
    } else {
      use(batch, {{}, {}, embed(batch)});
    }
  }
}

std::unique_ptr<DividedHead> Task::divided_head(const std::vector<BatchPart>&, double, bool) { return nullptr; }

memory::Chain Task::chain(const data::Batch& batch, std::span<const int64_t> sizes) {
  return {{memory::make_block("", {}, [this, &batch, sizes](const Tensor&) { return loss(batch, sizes); })}};
}

}  // namespace tandem::train
