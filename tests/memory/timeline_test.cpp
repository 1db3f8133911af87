#include "tandem/memory/timeline.h"

#include <gtest/gtest.h>

namespace tandem::memory {
namespace {

using What = Event::What;

Event event(double seconds, What what, uint64_t number, int64_t bytes, Category category, Phase phase,
            int64_t step = 1) {
  Event event{.seconds = seconds, .number = number, .bytes = bytes, .step = step};
  event.block = static_cast<int>(number);
  event.category = category;
  event.phase = phase;
  event.what = what;
  return event;
}

/// An older storage, a step before, then two activations, of which the second becomes a gradient in backward.
std::vector<Event> events() {
  constexpr auto kForward = Phase::forward, kBackward = Phase::backward;
  constexpr auto kActivations = Category::activations, kGradients = Category::gradients;
  return {event(1, What::allocate, 1, 100, Category::parameters, kForward, 0),
          event(2, What::allocate, 2, 40, kActivations, kForward),
          event(3, What::allocate, 3, 8, kActivations, kForward),
          event(4, What::free, 3, 8, kActivations, kForward),
          event(5, What::allocate, 4, 30, kActivations, kBackward),
          event(6, What::move, 4, 30, kGradients, kBackward),
          event(7, What::free, 2, 40, kActivations, kBackward),
          event(8, What::free, 1, 100, Category::parameters, Phase::optimizer, 2)};
}

TEST(Timeline, PlaysOneStep) {
  const auto timeline = timeline_of(events(), 1);
  ASSERT_EQ(timeline.moments.size(), 6u);
  EXPECT_EQ(timeline.moments[0].seconds, 0);
  EXPECT_EQ(timeline.moments[5].seconds, 5);
  EXPECT_EQ(timeline.moments[2].block, 3) << "a free begins nothing";
  EXPECT_EQ(timeline.moments[3].live, (CategoryBytes{100, 30, 0, 40})) << "a gradient from its birth";
  EXPECT_EQ(timeline.moments[5].live, (CategoryBytes{100, 30, 0, 0}));
  EXPECT_EQ(timeline.peak, 3u);
  EXPECT_EQ(timeline.highest, (CategoryBytes{100, 30, 0, 48}));
}

TEST(Timeline, TellsWhatForwardHasSavedAndThePeak) {
  const auto account = timeline_of(events(), 1).account;
  EXPECT_EQ(account.live, (CategoryBytes{100, 0, 0, 40})) << "when backward begins";
  EXPECT_EQ(account.at_peak, (CategoryBytes{100, 30, 0, 40}));
  ASSERT_EQ(account.blocks.size(), 3u);
  EXPECT_EQ(account.blocks[1].block, 2);
  EXPECT_EQ(account.blocks[1].live, (CategoryBytes{0, 0, 0, 40}));
  EXPECT_EQ(account.blocks[2].at_peak, (CategoryBytes{0, 30}));
}

/// The batch is let go when the optimizer has no memory of its own.
TEST(Timeline, EndsWithTheUpdate) {
  auto with_batch = events();
  with_batch.insert(with_batch.end() - 1, event(7.5, What::free, 1, 100, Category::parameters, Phase::forward));
  const auto moments = timeline_of(with_batch, 1).moments;
  ASSERT_EQ(moments.size(), 7u);
  EXPECT_EQ(moments[2].phase, Phase::forward);
  EXPECT_EQ(moments[5].phase, Phase::backward);
  EXPECT_EQ(moments[6].phase, Phase::optimizer);
}

TEST(Timeline, TheMicroBatchThatSavesMostCounts) {
  auto two = events();
  two.erase(two.end() - 1);
  two.push_back(event(9, What::allocate, 5, 90, Category::activations, Phase::forward));
  two.push_back(event(10, What::free, 5, 90, Category::activations, Phase::backward));
  EXPECT_EQ(timeline_of(two, 1).account.live, (CategoryBytes{100, 30, 0, 90}));
}

TEST(Timeline, OlderStoragesAreHeld) {
  Account held;
  held.add(Category::buffers, 7);
  const std::vector<Event> one = {event(1, What::allocate, 9, 1, Category::other, Phase::forward),
                                  event(2, What::free, 8, 5, Category::buffers, Phase::forward)};
  auto timeline = timeline_of(one, 1, held);
  EXPECT_EQ(timeline.moments[0].live, (CategoryBytes{0, 0, 0, 0, 7, 0, 1}));
  EXPECT_EQ(total_of(timeline.moments[1].live), 3);
  EXPECT_TRUE(timeline_of(one, 2, held).moments.empty());
}

}  // namespace
}  // namespace tandem::memory
