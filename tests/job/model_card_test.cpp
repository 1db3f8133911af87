#include "tandem/job/model_card.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tests/job/job_of.h"
#include "tests/support/text_of.h"

namespace tandem::job {
namespace {

using nlohmann::json;
using test::text_of;

/// Patterns whose classes have names.
class Named final : public Patterns {
 public:
  explicit Named(int64_t classes, std::string end = "") : classes_(classes), end_(std::move(end)) {}
  int64_t num_classes() const override { return classes_; }
  std::string class_name(int64_t label) const override { return "no " + std::to_string(label) + end_; }

 private:
  int64_t classes_;
  std::string end_;
};

train::Outcome tested() {
  train::Outcome outcome;
  outcome.scored_step = 20;
  outcome.scores = {{{"top1", "top-1", 0.5, train::ScoreUnit::fraction}, {"loss", "loss", INFINITY}}, 60};
  return outcome;
}

TEST(ModelCard, SaysModelShapeClassesScoresAndSettings) {
  const auto job = job_of({"model=mlp", "embedding=24", "train.lr=0.25", "out=somewhere", "eval.pairs=a.bin,b.bin"});
  const Named names(3);
  const auto card = card_writer(job, names)(30, tested());
  EXPECT_FALSE(card.class_names.defined());
  auto found = json::parse(card.text);
  const auto saved = found["settings"];
  found.erase("settings");
  EXPECT_EQ(found, json::parse(R"({"format": "tandem.model", "version": 1, "step": 30, "model": "mlp",
                                   "input": {"channels": 1, "height": 8, "width": 8},
                                   "preprocessing": {"height": 8, "width": 8, "orientation": "exif",
                                                     "resize": "stretch", "filter": "bilinear", "antialias": true,
                                                     "reducing_gap": 3, "colours": "grey", "inverted": true,
                                                     "mean": [0.5], "std": [0.5]},
                                   "head": {"normalise_features": true, "normalise_weight": true, "scale": 24.0},
                                   "classes": {"count": 3, "names": ["no 0", "no 1", "no 2"]},
                                   "metrics": {"step": 20, "test_images": 60, "top1": 0.5}})"));
  EXPECT_EQ(saved["train.lr"], "0.25");
  EXPECT_FALSE(saved.contains("out"));
  const auto facts = read_card(card.text, "model.json");
  const auto& read = facts.settings;
  EXPECT_EQ(read.get_int("embedding"), 24);
  EXPECT_EQ(read.get_list("eval.pairs"), (Words{"a.bin", "b.bin"}));
  EXPECT_EQ(read.get_string("out"), "");
}

TEST(ModelCard, WithoutATestThereAreNoMetrics) {
  const auto job = job_of({});
  const Patterns numbers;  // its classes are called by their numbers
  const auto found = json::parse(card_writer(job, numbers)(0, {}).text);
  EXPECT_EQ(found["metrics"], json::object());
  EXPECT_EQ(found["classes"], json::parse(R"({"count": 11})"));
}

TEST(ModelCard, LongNamesAreATensor) {
  const auto job = job_of({});
  const Named names(100'000, std::string(10, 'x'));
  const auto write = card_writer(job, names);
  const auto card = write(1, {});
  EXPECT_LT(card.text.size(), 20'000u);
  EXPECT_EQ(json::parse(card.text)["classes"],
            json::parse(R"({"count": 100000, "names_tensor": "tandem.class_names"})"));
  ASSERT_EQ(card.class_names.scalar_type(), at::kByte);
  const auto* bytes = card.class_names.const_data_ptr<uint8_t>();
  const auto list = json::parse(bytes, bytes + card.class_names.numel());
  ASSERT_EQ(list.size(), 100'000u);
  EXPECT_EQ(list.back(), "no 99999xxxxxxxxxx");
  EXPECT_TRUE(write(2, {}).class_names.equal(card.class_names));
}

TEST(ModelCard, NamesThatAreNotUtf8AreReplaced) {
  const auto job = job_of({});
  const Named names(2, "\xff");
  EXPECT_EQ(json::parse(card_writer(job, names)(1, {}).text)["classes"]["names"][1], "no 1\xEF\xBF\xBD");
}

TEST(ModelCard, FaultsAreNamed) {
  const auto fault = [](const std::string& text) { return text_of([&] { read_card(text, "model.json"); }); };
  const std::string tail = ": the file is damaged, or of another program";
  EXPECT_EQ(fault("{"), "'model.json' holds no model card" + tail);
  EXPECT_EQ(fault(R"({"format": "gpt"})"), "'model.json' holds no model card" + tail);
  EXPECT_EQ(fault(R"({"format": "tandem.model", "version": 7})"), "'model.json': version is 7, wanted 1" + tail);
  EXPECT_EQ(fault(R"({"format": "tandem.model", "version": 1})"),
            "'model.json': settings is missing, wanted an object" + tail);
  EXPECT_EQ(fault(R"({"format": "tandem.model", "version": 1, "settings": {"ranks": 2}})"),
            "'model.json': settings.ranks is 2, wanted a text" + tail);
  EXPECT_THROW(read_card(R"({"format": "tandem.model", "version": 1, "settings": {"ranks": "two"}})", "m"),
               SettingsError);
}

}  // namespace
}  // namespace tandem::job
