#include "tandem/data/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::text_of;

/// Sample i: label i, 2 x 3 pixels of value i.
class Counting : public Dataset {
 public:
  explicit Counting(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t num_classes() const override { return size_; }
  std::array<int64_t, 3> image_shape() const override { return {1, 2, 3}; }
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    check_read(index, pixels);
    if (index == broken_) throw DataError("sample " + std::to_string(index) + " is broken");
    std::ranges::fill(pixels, static_cast<uint8_t>(index));
    return index;
  }
  std::string class_name(int64_t label) const override { return std::to_string(label); }
  std::string describe() const override { return "counting"; }
  void break_sample(int64_t index) { broken_ = index; }

 private:
  int64_t size_, broken_ = -1;
};

std::vector<Batch> epoch_of(Loader& loader, int64_t epoch, int64_t first_batch = 0) {
  loader.start(epoch, first_batch);
  std::vector<Batch> batches;
  for (Batch batch; loader.next(batch);) batches.push_back(batch);
  return batches;
}

std::vector<int64_t> labels_of(const Batch& batch) {
  const auto* values = batch.labels.const_data_ptr<int64_t>();
  return {values, values + batch.labels.numel()};
}

TEST(Loader, AnEpochIsEverySampleOnceInANewOrder) {
  const Counting dataset(50);
  Loader loader(dataset, {.batch = 7, .drop_last = false});
  std::vector<int64_t> orders[2];
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& batch : epoch_of(loader, epoch)) {
      for (const auto label : labels_of(batch)) orders[epoch].push_back(label);
    }
    EXPECT_EQ(std::set(orders[epoch].begin(), orders[epoch].end()).size(), 50U);
    EXPECT_EQ(orders[epoch].size(), 50U);
    EXPECT_FALSE(std::ranges::is_sorted(orders[epoch]));
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST(Loader, UnshuffledKeepsTheOrderAndTheShortLastBatch) {
  const Counting dataset(10);
  Loader loader(dataset, {.batch = 4, .shuffle = false, .drop_last = false, .augment = no_augmentation()});
  const auto batches = epoch_of(loader, 0);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  EXPECT_EQ(labels_of(batches[2]), (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(batches[2].global_size, 2);
  EXPECT_EQ(batches[1].images.sizes(), (std::vector<int64_t>{4, 1, 2, 3}));
  EXPECT_EQ(batches[1].images.scalar_type(), at::kFloat);
  EXPECT_NEAR(batches[1].images[2][0][1][2].item<float>(), (6 / 255.0 - 0.5) / 0.5, 1e-6);
  Loader dropping(dataset, {.batch = 4});
  EXPECT_EQ(dropping.batches_per_epoch(), 2);
  EXPECT_EQ(epoch_of(dropping, 0).size(), 2U);
}

TEST(Loader, RanksTogetherSeeExactlyTheSameBatches) {
  const Counting dataset(47);
  for (const auto& [prefetch, threads] : {std::pair(0, 1), {2, 1}, {3, 3}}) {
    Loader whole(dataset, {.batch = 13, .seed = 5, .drop_last = false, .prefetch = 0});
    const auto expected = epoch_of(whole, 3);
    for (int size = 1; size <= 5; ++size) {
      std::vector<std::vector<Batch>> parts;
      for (int rank = 0; rank < size; ++rank) {
        Loader loader(dataset, {.batch = 13,
                                .rank = rank,
                                .size = size,
                                .seed = 5,
                                .drop_last = false,
                                .prefetch = prefetch,
                                .threads = threads});
        parts.push_back(epoch_of(loader, 3));
        ASSERT_EQ(parts.back().size(), expected.size());
      }
      for (size_t b = 0; b < expected.size(); ++b) {
        std::vector<Tensor> images, labels;
        for (const auto& part : parts) {
          EXPECT_EQ(part[b].global_size, expected[b].global_size);
          images.push_back(part[b].images);
          labels.push_back(part[b].labels);
        }
        EXPECT_TRUE(at::equal(at::cat(images), expected[b].images)) << size << " ranks, batch " << b;
        EXPECT_TRUE(at::equal(at::cat(labels), expected[b].labels)) << size << " ranks, batch " << b;
      }
    }
  }
}

TEST(Loader, PartsDifferByOneAtMostAndMayBeEmpty) {
  const Counting dataset(15);
  std::vector<std::vector<int64_t>> counts;
  for (int rank = 0; rank < 4; ++rank) {
    Loader loader(dataset, {.batch = 13, .rank = rank, .size = 4, .drop_last = false});
    counts.emplace_back();
    for (const auto& batch : epoch_of(loader, 0)) counts.back().push_back(batch.images.size(0));
  }
  EXPECT_EQ(counts, (std::vector<std::vector<int64_t>>{{4, 1}, {3, 1}, {3, 0}, {3, 0}}));
}

TEST(Loader, ABatchKnowsTheNumberOfItsFirstSample) {
  const Counting dataset(50);
  constexpr std::array<int64_t, 3> kBefore = {0, 3, 5};  // samples of the ranks before
  for (int rank = 0; rank < 3; ++rank) {
    Loader whole(dataset, {.batch = 7, .rank = rank, .size = 3});
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      const auto batches = epoch_of(whole, epoch, 2);
      for (size_t i = 0; i < batches.size(); ++i) {
        EXPECT_EQ(batches[i].first_sample, 49 * epoch + 7 * (2 + static_cast<int64_t>(i)) + kBefore[rank]);
      }
    }
  }
  Loader short_last(dataset, {.batch = 7, .drop_last = false});
  EXPECT_EQ(epoch_of(short_last, 1).front().first_sample, 50);
}

TEST(Loader, StartingLaterEqualsSkipping) {
  const Counting dataset(40);
  Loader loader(dataset, {.batch = 6, .drop_last = false});
  const auto all = epoch_of(loader, 2);
  for (int64_t first = 0; first <= 7; ++first) {
    const auto rest = epoch_of(loader, 2, first);
    ASSERT_EQ(rest.size(), 7U - static_cast<size_t>(first));
    for (size_t i = 0; i < rest.size(); ++i) {
      EXPECT_TRUE(at::equal(rest[i].images, all[static_cast<size_t>(first) + i].images));
    }
  }
}

TEST(Loader, RestartInTheMiddleDropsWhatWasPrepared) {
  const Counting dataset(64);
  Loader loader(dataset, {.batch = 4, .prefetch = 8, .threads = 3});
  const auto expected = epoch_of(loader, 1);
  for (int round = 0; round < 20; ++round) {
    loader.start(9);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    loader.start(1);
    ASSERT_TRUE(loader.next(batch));
    EXPECT_TRUE(at::equal(batch.images, expected[0].images));
  }
}

TEST(Loader, AFaultComesOutOfNextAndTheRestGoesOn) {
  Counting dataset(30);
  dataset.break_sample(12);
  for (const int prefetch : {0, 3}) {
    Loader loader(dataset, {.batch = 10, .shuffle = false, .prefetch = prefetch, .threads = 2});
    loader.start(0);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(text_of<DataError>([&] { loader.next(batch); }), "sample 12 is broken");
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(labels_of(batch).front(), 20);
    EXPECT_FALSE(loader.next(batch));
    EXPECT_FALSE(loader.next(batch));
  }
}

/// Readers wait here until the test opens the gate.
class Gated : public Counting {
 public:
  using Counting::Counting;
  int64_t read(int64_t index, std::span<uint8_t> pixels) const override {
    ++waiting_;
    waiting_.notify_all();
    open_.wait(false);
    readers_on_caller_ += std::this_thread::get_id() == caller_ ? 1 : 0;
    return Counting::read(index, pixels);
  }
  mutable std::atomic<int> waiting_ = 0, readers_on_caller_ = 0;
  std::atomic<bool> open_ = false;
  std::thread::id caller_ = std::this_thread::get_id();
};

TEST(Loader, MakesBatchesAheadOffTheCallersThread) {
  Gated dataset(64);
  Loader loader(dataset, {.batch = 16, .prefetch = 2, .threads = 2});
  loader.start(0);
  for (int seen = dataset.waiting_; seen < 2; seen = dataset.waiting_)
    dataset.waiting_.wait(seen);  // nobody called next()
  dataset.open_ = true;
  dataset.open_.notify_all();
  Batch batch;
  while (loader.next(batch)) {
  }
  EXPECT_EQ(dataset.waiting_, 64);
  EXPECT_EQ(dataset.readers_on_caller_, 0);
}

TEST(Loader, ShardsAreDealtOutInTurn) {
  const Counting dataset(13);
  const auto labels = [&](int rank, int size) {
    Loader loader(
        dataset,
        {.batch = 11, .rank = rank, .size = size, .shards = 4, .shuffle = false, .augment = no_augmentation()});
    const auto batch = epoch_of(loader, 0).at(0);
    EXPECT_EQ(batch.global_size, 11);
    EXPECT_EQ(batch.first_sample, labels_of(batch)[0]);
    return labels_of(batch);
  };
  // 3, 3, 3 and 2 samples
  EXPECT_EQ(labels(0, 1), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(labels(0, 2), (std::vector<int64_t>{0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(labels(1, 2), (std::vector<int64_t>{3, 4, 5, 9, 10}));
  EXPECT_EQ(labels(3, 4), (std::vector<int64_t>{9, 10}));
  EXPECT_EQ(samples_of({.rank = 1, .size = 2, .shards = 4}, 11), 5);
  EXPECT_EQ(samples_of({.rank = 1, .size = 2}, 11), 5);
  EXPECT_EQ(loader_memory({.batch = 11, .rank = 0, .size = 2, .shards = 4, .prefetch = 0}, {1, 2, 3}, 9), 6 * (24 + 8));
}

TEST(Loader, GoesAwayWhileBatchesAreOnTheirWay) {
  const Counting dataset(4096);
  for (int round = 0; round < 50; ++round) {
    Loader loader(dataset, {.batch = 256, .prefetch = 4, .threads = 3});
    if (round % 3 != 0) loader.start(0);
    Batch batch;
    if (round % 3 == 2) loader.next(batch);
  }
}

TEST(Loader, AnEmptyDataSetHasNoBatches) {
  const Counting dataset(0);
  Loader loader(dataset, {.batch = 4, .drop_last = false});
  EXPECT_TRUE(epoch_of(loader, 0).empty());
}

TEST(Loader, WrongOptionsAreTold) {
  const Counting dataset(20);
  const auto told = [&](LoaderOptions options) { return text_of<SettingsError>([&] { Loader(dataset, options); }); };
  EXPECT_EQ(told({.batch = 3, .size = 4}), "batch is 3, wanted at least the number of ranks, 4");
  EXPECT_EQ(told({.batch = 0}), "batch is 0, wanted at least the number of ranks, 1");
  EXPECT_EQ(told({.batch = 21}), "batch is 21, wanted at most the number of images, 20: lower batch");
  EXPECT_EQ(told({.batch = 4, .augment = {.affine = 7}}), "affine is 7.000000, wanted 0..0.3");
  EXPECT_EQ(told({.batch = 4, .shards = 5}), "batch is 4, wanted at least the number of shards, 5");
  EXPECT_THROW(Loader(dataset, {.batch = 4, .size = 2, .shards = 3}), c10::ValueError);
  EXPECT_THROW(Loader(dataset, {.batch = 4, .rank = 2, .size = 2}), c10::ValueError);
  EXPECT_THROW(Loader(dataset, {.batch = 4, .prefetch = -1}), c10::ValueError);
  EXPECT_THROW(Loader(dataset, {.batch = 4, .threads = 0}), c10::ValueError);
  Loader loader(dataset, {.batch = 4});
  Batch batch;
  EXPECT_THROW(loader.next(batch), c10::ValueError);
  EXPECT_THROW(loader.start(-1), c10::ValueError);
  EXPECT_THROW(loader.start(0, 6), c10::ValueError);
}

/// Idle ranks see each batch, of the same size as the others see it, and none of its samples.
TEST(Loader, IdleRanksGoThroughTheSameBatches) {
  const Counting dataset(10);
  const LoaderOptions reading = {
      .batch = 4, .size = 2, .idle = 2, .shuffle = false, .drop_last = false, .augment = no_augmentation()};
  EXPECT_EQ(samples_of_ranks(reading, 3), (std::vector<int64_t>{2, 1, 0, 0}));
  for (const int prefetch : {0, 2}) {
    for (const int rank : {1, 2, 3}) {
      auto own = reading;
      own.rank = rank;
      own.prefetch = prefetch;
      Loader loader(dataset, own);
      const auto batches = epoch_of(loader, 0);
      ASSERT_EQ(batches.size(), 3U);
      EXPECT_EQ(labels_of(batches[1]), rank == 1 ? (std::vector<int64_t>{6, 7}) : std::vector<int64_t>{});
      EXPECT_EQ(batches[1].images.size(0), rank == 1 ? 2 : 0);
      EXPECT_EQ(batches[1].global_size, 4);
    }
  }
  EXPECT_EQ(loader_memory({.batch = 4, .rank = 2, .size = 2, .idle = 1}, {1, 2, 3}, 5), 0);
  EXPECT_EQ(text_of<c10::ValueError>([&] { Loader(dataset, {.rank = 4, .size = 2, .idle = 2}); }),
            "loader: rank is 4 of 2, wanted 0..size-1, or an idle one");
}

}  // namespace
}  // namespace tandem::data
