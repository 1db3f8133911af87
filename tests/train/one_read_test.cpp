#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tandem/comm/world.h"
#include "tandem/train/detail/step_numbers.h"
#include "tests/train/classifier_task.h"

// What a step works out on its device the host reads once: nothing else waits for the device.
namespace tandem::train {
namespace {

std::atomic<int> reads{0};

std::unique_ptr<at::ObserverContext> count_reads(const at::RecordFunction& function) {
  if (std::string_view(function.name()) == "aten::_local_scalar_dense") ++reads;
  return nullptr;
}

/// Counts the operators of this thread that read a number of a tensor.
class ReadCount {
 public:
  ReadCount()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(count_reads).scopes({at::RecordScope::FUNCTION}).needsIds(false))) {
    reads = 0;
  }
  ~ReadCount() { at::removeCallback(handle_); }
  ReadCount(const ReadCount&) = delete;
  ReadCount& operator=(const ReadCount&) = delete;

 private:
  at::CallbackHandle handle_;
};

TEST(OneRead, ReadsAreCounted) {
  const ReadCount count;
  at::ones({1}).item<float>();
  EXPECT_EQ(reads, 1);
}

TEST(OneRead, NoOperatorOfAStepReadsANumber) {
  const Patterns patterns;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    ClassifierTask task({}, group);
    parallel::Mesh mesh({}, group);
    SupervisedStep step(task, {.clip = 0.5, .accumulate = 3, .num_classes = 11, .loss_scale = LossScaleOptions{}},
                        mesh);
    data::Loader loader(patterns, {.batch = 23, .prefetch = 0});
    data::Batch batch;
    loader.start(0);
    ASSERT_TRUE(loader.next(batch));
    step.run(batch, 0, 0.05);
    const ReadCount count;
    const auto reading = *step.run(batch, 1, 0.05);
    EXPECT_TRUE(reading.loss && !reading.fault && !reading.is_left_out);
    EXPECT_EQ(reads, 0);
  });
}

TEST(OneRead, NumbersComeInTheOrderInWhichTheyWereAdded) {
  detail::StepNumbers numbers(at::kCPU);
  EXPECT_TRUE(numbers.read().empty());
  const auto two = numbers.add(2), one = numbers.add(1);
  two.copy_(at::tensor({3, 4}));
  one.add_(5);
  EXPECT_EQ(numbers.read(), (std::vector<double>{3, 4, 5}));
  detail::add_square(at::tensor({2.0F, 3.0F}), numbers.add(1), numbers.add(1));
  EXPECT_EQ(numbers.read(), (std::vector<double>{3, 4, 5, 13, 13}));
  EXPECT_EQ(numbers.count(), 5U);
}

}  // namespace
}  // namespace tandem::train
