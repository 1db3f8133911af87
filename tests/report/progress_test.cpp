#include "tandem/report/progress.h"

#include <gtest/gtest.h>

namespace tandem::report {
namespace {

ProgressState at_320() {
  return {.title = "epoch 1", .done = 320, .total = 763, .seconds = 62.9, .values = {{"loss", "9.31"}, {"lr", "0.18"}}};
}

TEST(FormatProgress, LayoutIsTqdms) {
  EXPECT_EQ(format_progress(at_320(), 0),
            "epoch 1:  42%|████▏     | 320/763 [01:02<01:27, 5.1 step/s, loss=9.31, lr=0.18]");
}

TEST(FormatProgress, TheTimeOfTheWholeStandsBeforeTheValues) {
  auto state = at_320();
  state.rest = "3 m left";
  EXPECT_EQ(format_progress(state, 0),
            "epoch 1:  42%|████▏     | 320/763 [01:02<01:27, 5.1 step/s, 3 m left, loss=9.31, lr=0.18]");
  EXPECT_EQ(format_progress(state, 60), "epoch 1:  42% 320/763 [01:02<01:27, 5.1 step/s, 3 m left]");
}

TEST(FormatProgress, BeginningAndEnd) {
  auto state = at_320();
  state.done = 0, state.seconds = 0, state.values = {};
  EXPECT_EQ(format_progress(state, 0), "epoch 1:   0%|          | 0/763 [00:00<?, ? step/s]");
  state.done = 763, state.seconds = 7200;
  EXPECT_EQ(format_progress(state, 0), "epoch 1: 100%|██████████| 763/763 [2:00:00<00:00, 9.4 s/step]");
}

TEST(FormatProgress, HundredPercentIsTheEndOnly) {
  EXPECT_EQ(format_progress({.title = "t", .done = 999, .total = 1000, .seconds = 1}, 0),
            "t:  99%|█████████▉| 999/1000 [00:01<00:00, 999.0 step/s]");
}

TEST(FormatProgress, EachEighthHasItsBlock) {
  std::string last_cells;
  for (int done = 0; done <= 8; ++done) {
    const auto line = format_progress({.title = "t", .done = done, .total = 80, .seconds = 1}, 0);
    const auto bar = line.find('|') + 1;
    last_cells += line.substr(bar, line.find(' ', bar) - bar) + ";";
  }
  EXPECT_EQ(last_cells, ";▏;▎;▍;▌;▋;▊;▉;█;");
}

TEST(FormatProgress, UnknownTotalHasNoBar) {
  EXPECT_EQ(format_progress({.title = "t", .done = 50, .seconds = 10, .unit = "image"}, 0),
            "t: 50 image [00:10, 5.0 image/s]");
}

TEST(FormatProgress, ResumedStepsDoNotCountForTheRate) {
  EXPECT_EQ(format_progress({.title = "t", .done = 60, .total = 100, .first = 50, .seconds = 5}, 0),
            "t:  60%|██████    | 60/100 [00:05<00:20, 2.0 step/s]");
}

TEST(FormatProgress, NarrowTerminalsLoseTheBarThenTheValues) {
  const auto state = at_320();
  EXPECT_EQ(format_progress(state, 79), format_progress(state, 0));  // it is 79 wide
  EXPECT_EQ(format_progress(state, 78), "epoch 1:  42% 320/763 [01:02<01:27, 5.1 step/s, loss=9.31, lr=0.18]");
  EXPECT_EQ(format_progress(state, 66), "epoch 1:  42% 320/763 [01:02<01:27, 5.1 step/s, loss=9.31]");
  EXPECT_EQ(format_progress(state, 50), "epoch 1:  42% 320/763 [01:02<01:27, 5.1 step/s]");
  EXPECT_EQ(format_progress(state, 20), "epoch 1:  42% 320/76");
}

TEST(FormatProgress, CuttingKeepsCharactersWhole) {
  EXPECT_EQ(format_progress({.title = "训练轮", .done = 1, .total = 2, .seconds = 1}, 2), "训练");
}

struct Recorder {
  double now = 100;
  std::vector<std::pair<std::string, bool>> texts;

  ProgressOptions options(int columns) {
    return {.title = "t",
            .total = 100,
            .clock = [this] { return now; },
            .sink = [this](std::string_view text, bool open) { texts.emplace_back(text, open); },
            .columns = columns};
  }
};

TEST(Progress, TerminalIsDrawnAtMostTenTimesASecond) {
  Recorder recorder;
  Progress progress(recorder.options(80));
  for (int step = 1; step <= 100; ++step) {
    recorder.now = 100 + step * 0.01;
    progress.update(step);
  }
  EXPECT_GE(recorder.texts.size(), 9u);
  EXPECT_LE(recorder.texts.size(), 10u);
  for (const auto& [text, open] : recorder.texts) {
    EXPECT_TRUE(open);
    EXPECT_EQ(text.find('\n'), text.npos);
  }
}

TEST(Progress, TheTimeOfTheWholeIsThatOfTheLastUpdate) {
  Recorder recorder;
  Progress progress(recorder.options(80));
  progress.update(1, {}, "5 m left");
  recorder.now += 10;
  progress.update(50, {}, "4 m left");
  progress.update(100);
  progress.finish();
  ASSERT_EQ(recorder.texts.size(), 3u);
  EXPECT_EQ(recorder.texts[1].first, "t:  50%|█████     | 50/100 [00:10<00:10, 5.0 step/s, 4 m left]");
  EXPECT_EQ(recorder.texts[2].first, "t: 100%|██████████| 100/100 [00:10<00:00, 10.0 step/s]\n");
}

TEST(Progress, FinishLeavesTheLine) {
  Recorder recorder;
  {
    Progress progress(recorder.options(80));
    progress.update(1);
    recorder.now += 10;
    progress.update(100, {{"loss", "1"}});
    progress.finish();
    progress.update(100);
    progress.finish();
  }
  ASSERT_EQ(recorder.texts.size(), 3u);
  EXPECT_EQ(recorder.texts.back().first, "t: 100%|██████████| 100/100 [00:10<00:00, 10.0 step/s, loss=1]\n");
  EXPECT_FALSE(recorder.texts.back().second);
}

TEST(Progress, AnUnfinishedBarStaysWhenItsOwnerLeaves) {
  Recorder recorder;
  { Progress(recorder.options(80)).update(3); }
  ASSERT_EQ(recorder.texts.size(), 2u);
  EXPECT_EQ(recorder.texts[1].first, recorder.texts[0].first + "\n");
}

TEST(Progress, ElsewhereALineEachTenthButNotWithinTenSeconds) {
  Recorder recorder;
  Progress progress(recorder.options(0));
  std::vector<int> drawn;
  for (int step = 1; step <= 60; ++step) {
    recorder.now = 100 + step * 0.5;
    const auto before = recorder.texts.size();
    progress.update(step);
    if (recorder.texts.size() > before) drawn.push_back(step);
  }
  EXPECT_EQ(drawn, (std::vector<int>{20, 40, 60}));
  EXPECT_EQ(recorder.texts[0].first, "t:  20%|██        | 20/100 [00:10<00:40, 2.0 step/s]\n");
  EXPECT_FALSE(recorder.texts[0].second);
}

TEST(Progress, ElsewhereASlowJobSpeaksOnceAMinute) {
  Recorder recorder;
  Progress progress(recorder.options(0));
  for (int second = 1; second <= 150; ++second) {
    recorder.now = 100 + second;
    progress.update(1);
  }
  EXPECT_EQ(recorder.texts.size(), 2u);
}

TEST(Progress, TheRateCountsFromTheStartThatIsGiven) {
  Recorder recorder;
  auto options = recorder.options(80);
  options.start = 98;
  options.total = 1;
  {
    Progress progress(options);
    progress.update(1);
  }
  EXPECT_EQ(recorder.texts.back().first, "t: 100%|██████████| 1/1 [00:02<00:00, 2.0 s/step]\n");
}

TEST(Progress, OtherRanksAreSilent) {
  Recorder recorder;
  auto options = recorder.options(80);
  options.shown = false;
  {
    Progress progress(options);
    progress.update(50);
    progress.finish();
  }
  EXPECT_TRUE(recorder.texts.empty());
}

}  // namespace
}  // namespace tandem::report
