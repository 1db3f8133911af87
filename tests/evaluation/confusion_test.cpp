#include "tandem/evaluation/confusion.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/text_of.h"

namespace tandem::evaluation {
namespace {

using test::text_of;

Tensor numbers(std::vector<int64_t> list) { return at::tensor(list, at::kLong); }

TEST(Confusion, CountsWhatIsTakenForWhat) {
  const auto labels = numbers({0, 0, 0, 2, 2, 3, 3, 3}), answers = numbers({0, 2, 2, 2, 0, 0, 0, 3});
  const auto found = confusion_of(labels, answers, 4);
  ASSERT_EQ(found.classes.size(), 3u);  // class 1 has no sample
  const auto one = [&](size_t i) {
    return std::array{found.classes[i].label, found.classes[i].right, found.classes[i].count};
  };
  EXPECT_EQ(one(0), (std::array<int64_t, 3>{0, 1, 3}));
  EXPECT_EQ(one(1), (std::array<int64_t, 3>{2, 1, 2}));
  EXPECT_EQ(one(2), (std::array<int64_t, 3>{3, 1, 3}));
  std::vector<std::array<int64_t, 3>> pairs;
  for (const auto& pair : found.pairs) pairs.push_back({pair.label, pair.taken_for, pair.count});
  EXPECT_EQ(pairs, (std::vector<std::array<int64_t, 3>>{{0, 2, 2}, {3, 0, 2}, {2, 0, 1}}));
  EXPECT_TRUE(found.matrix.equal(numbers({1, 0, 2, 0, 0, 0, 0, 0, 1, 0, 1, 0, 2, 0, 0, 1}).view({4, 4})));
  EXPECT_FALSE(confusion_of(labels, answers, 4, 3).matrix.defined());
  EXPECT_TRUE(confusion_of(numbers({}), numbers({}), 4).classes.empty());
}

TEST(Confusion, TheWorstAreWrongAndSure) {
  const auto labels = numbers({0, 1, 0, 1, 0}), answers = numbers({1, 1, 1, 0, 1});
  const auto scores = at::tensor({0.5f, 1.f, 0.9f, 0.5f, 0.7f});
  EXPECT_EQ(worst_of(labels, answers, scores, 9), (std::vector<int64_t>{2, 4, 0, 3}));
  EXPECT_EQ(worst_of(labels, answers, scores, 2), (std::vector<int64_t>{2, 4}));
}

TEST(Confusion, WrongNumbersAreTold) {
  const auto told = [](const Tensor& labels, const Tensor& answers) {
    return text_of<c10::ValueError>([&] { confusion_of(labels, answers, 2); });
  };
  EXPECT_NE(told(numbers({0, 2}), numbers({0, 0})).find("one of labels is 2, wanted 0..1"), std::string::npos);
  EXPECT_NE(told(numbers({0}), numbers({-1})).find("one of answers is -1, wanted 0..1"), std::string::npos);
  EXPECT_NE(told(numbers({0}), numbers({})).find("answers is [0] Long, wanted [1] of int64"), std::string::npos);
}

}  // namespace
}  // namespace tandem::evaluation
