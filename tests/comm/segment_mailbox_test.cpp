#include "tandem/comm/segments/segment_mailbox.h"

#include <gtest/gtest.h>

#include <thread>

#include "tandem/comm/local/local_exchange.h"
#include "tests/comm/shared_stages.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using Bytes = SegmentMailbox::Bytes;

/// Those of two ranks.
struct Two {
  std::vector<std::shared_ptr<Stage>> stages;
  std::vector<std::shared_ptr<SegmentMailbox>> boxes;

  explicit Two(milliseconds timeout) {
    for (auto& stage : test::shared_stages(2, timeout)) {
      stages.push_back(std::move(stage));
      boxes.push_back(std::make_shared<SegmentMailbox>(stages.back()));
    }
  }
  auto send(int tag, const std::vector<int>& numbers) const { return boxes[0]->post(1, tag, {as_bytes(numbers)}); }
  std::vector<int> receive(int tag) const {
    std::vector<int> numbers;
    boxes[1]->take(0, tag, [&](Bytes bytes) {
      numbers.resize(bytes.size() / sizeof(int));
      if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
    });
    return numbers;
  }
  static Bytes as_bytes(const std::vector<int>& numbers) { return std::as_bytes(std::span(numbers)); }
};

TEST(SegmentMailbox, MessagesOfATagComeInTheirOrderAndOthersDoNotWaitForThem) {
  const Two two(milliseconds(10'000));
  const std::vector<std::vector<int>> sent = {{1}, {}, {3, 3}, std::vector<int>(1 << 20, 4), {5}};
  std::vector<std::shared_ptr<SegmentMailbox::Posted>> posted;
  for (size_t i = 0; i < sent.size(); ++i) posted.push_back(two.send(static_cast<int>(i % 2), sent[i]));
  for (const size_t i : {1, 0, 2, 3, 4}) EXPECT_EQ(two.receive(static_cast<int>(i % 2)), sent[i]) << i;
  for (const auto& message : posted) message->wait();
}

TEST(SegmentMailbox, APieceFollowsTheOther) {
  const Two two(milliseconds(10'000));
  const std::vector<int> first = {1, 2}, second = {3};
  two.boxes[0]->post(1, 7, {Two::as_bytes(first), {}, Two::as_bytes(second)});
  EXPECT_EQ(two.receive(7), (std::vector<int>{1, 2, 3}));
}

/// More than there is room for notes.
TEST(SegmentMailbox, ManyMessagesWaitForTheirReceiver) {
  const Two two(milliseconds(10'000));
  constexpr int kMany = 3000;
  std::thread sender([&] {
    std::vector<std::shared_ptr<SegmentMailbox::Posted>> posted;
    for (int i = 0; i < kMany; ++i) posted.push_back(two.send(0, {i}));
    for (const auto& message : posted) message->wait();
  });
  std::this_thread::sleep_for(milliseconds(20));
  for (int i = 0; i < kMany; ++i) EXPECT_EQ(two.receive(0), std::vector<int>{i});
  sender.join();
}

TEST(SegmentMailbox, TellsWhoDidNotCome) {
  const Two two(milliseconds(20));
  EXPECT_EQ(test::failure_of([&] { two.receive(0); }), "rank 0 has sent nothing within 20 ms");
  const auto posted = two.send(0, {1});
  EXPECT_EQ(test::failure_of([&] { posted->wait(); }), "rank 1 has received nothing within 20 ms");
  EXPECT_EQ(two.receive(0), std::vector<int>{1});
  posted->wait();
  two.stages[0]->leave("rank 0 is full");
  EXPECT_EQ(test::failure_of([&] { two.receive(0); }), "rank 0 is full");
  EXPECT_EQ(test::failure_of([&] { two.send(0, {1})->wait(); }), "rank 0 is full") << "it has left itself";
}

TEST(SegmentMailbox, WhatWasSentBeforeARankLeftIsReceived) {
  const Two two(milliseconds(10'000));
  const auto posted = two.send(0, {1});
  two.stages[0]->leave("rank 0 has left");
  EXPECT_EQ(two.receive(0), std::vector<int>{1});
  EXPECT_EQ(test::failure_of([&] { two.receive(0); }), "rank 0 has left");
}

TEST(Arena, UsesAgainWhatIsGivenBack) {
  Arena arena;
  std::vector<Arena::Piece> pieces;
  for (int i = 0; i < 3; ++i) pieces.push_back(arena.take(100'000));
  const auto bytes = arena.bytes();
  EXPECT_EQ(bytes, 1 << 20);
  for (int round = 0; round < 50; ++round) {
    for (const size_t i : {1, 0, 2}) {
      arena.give_back(pieces[i]);
      pieces[i] = arena.take(100'000 + 1000 * i + round);
      EXPECT_EQ(pieces[i].offset % 64, 0);
    }
  }
  EXPECT_EQ(arena.bytes(), bytes);
  for (const auto& piece : pieces) arena.give_back(piece);
  EXPECT_EQ(arena.take(bytes).offset, 0) << "free pieces side by side are one";
  arena.take(1);
  EXPECT_EQ(arena.bytes(), 2 * bytes);
  EXPECT_EQ(arena.take(5 * bytes).bytes, 5 * bytes);
}

}  // namespace
}  // namespace tandem::comm
