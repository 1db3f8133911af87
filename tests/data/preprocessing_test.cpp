#include "tandem/data/preprocessing.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tandem/data/image_folder.h"
#include "tandem/data/loader.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::text_of;

constexpr int kSide = 16;

/// A JPEG large enough to be decoded at a smaller scale, which lies on its side.
std::string lying_jpeg() {
  return test::with_exif(test::jpeg_of(131, 204, test::textured(131, 204, 3, 5)), test::exif_of(6));
}

std::vector<float> preprocessed(const std::string& file, const Preprocessing& preprocessing) {
  const auto& form = preprocessing.form;
  std::vector<float> out(static_cast<size_t>(num_planes(form) * form.height * form.width));
  preprocess(test::bytes_of(file), preprocessing, out);
  return out;
}

/// Each differs from the first in one field.
std::vector<Preprocessing> each_field() {
  const Preprocessing plain{.form = {.height = kSide, .width = kSide}, .normalization = {}};
  std::vector<Preprocessing> all(13, plain);
  all[1].form.orientation = Orientation::stored;
  all[2].form.fit = Fit::crop;
  all[3].form.filter = Filter::nearest;
  all[4].form.filter = Filter::bicubic;
  all[5].form.antialias = false;
  all[6].form.reducing_gap = 0;
  all[7].form.colours = Colours::bgr;
  all[8].form.colours = Colours::grey;
  all[9].form.inverted = true;
  all[10].normalization.mean = {0.485, 0.456, 0.406};
  all[11].normalization.deviation = {0.229, 0.224, 0.225};
  all[12].normalization = {{0.1}, {0.3}};
  return all;
}

TEST(Preprocessing, EveryFieldChangesTheAnswer) {
  const auto file = lying_jpeg();
  std::vector<std::vector<float>> answers;
  for (const auto& one : each_field()) {
    const auto answer = preprocessed(file, one);
    for (size_t i = 0; i < answers.size(); ++i) EXPECT_NE(answer, answers[i]) << i << ", " << answers.size();
    answers.push_back(answer);
  }
}

TEST(Preprocessing, IsWhatTheLoaderDoes) {
  const test::TemporaryFolder folder;
  std::vector<std::string> files = {lying_jpeg(), test::jpeg_of(40, 30, test::textured(40, 30, 3, 1)),
                                    test::png_of(9, 33, 4, test::textured(9, 33, 4, 2)),
                                    test::png_of(20, 12, 1, test::textured(20, 12, 1, 3))};
  for (size_t i = 0; i < files.size(); ++i) {
    const auto place = folder / (i < 2 ? "a" : "b");
    std::filesystem::create_directories(place);
    test::spill(place / ("0" + std::to_string(i) + ".png"), files[i]);
  }
  for (const auto& one : each_field()) {
    const auto split = image_folder({.folder = folder.path(), .size = kSide, .hold_out = 1000, .form = one.form});
    auto augment = no_augmentation();
    augment.normalization = one.normalization;
    Loader loader(*split.train, {.batch = 1, .shuffle = false, .augment = augment});
    loader.start(0);
    for (const size_t i : {0, 2}) {  // the last image of each class is held out
      Batch batch;
      ASSERT_TRUE(loader.next(batch));
      const auto* images = batch.images.const_data_ptr<float>();
      EXPECT_EQ(std::vector<float>(images, images + batch.images.numel()), preprocessed(files[i], one)) << i;
    }
  }
}

TEST(Preprocessing, ValuesAreThoseOfTheirChannel) {
  const auto file = test::png_of(8, 8, 10, 20, 30);
  const auto values = preprocessed(
      file, {.form = {.height = 8, .width = 8}, .normalization = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}});
  EXPECT_NEAR(values[0], (10 / 255.0 - 0.485) / 0.229, 1e-6);
  EXPECT_NEAR(values[64], (20 / 255.0 - 0.456) / 0.224, 1e-6);
  EXPECT_NEAR(values[191], (30 / 255.0 - 0.406) / 0.225, 1e-6);
}

TEST(Preprocessing, WrongOnesAreTold) {
  const auto file = test::png_of(8, 8, 10, 20, 30);
  const auto told = [&](const Preprocessing& one) { return text_of<SettingsError>([&] { preprocessed(file, one); }); };
  const ImageForm form{.height = 8, .width = 8};
  EXPECT_EQ(told({form, {{0, 0}, {1}}}), "mean has 2 numbers, wanted 1 or 3, one a channel");
  EXPECT_EQ(told({form, {{0}, {}}}), "deviation has 0 numbers, wanted 1 or 3, one a channel");
  EXPECT_EQ(told({form, {{0}, {1, 1, -1}}}), "deviation is -1.000000, wanted a number over 0");
  std::vector<float> small(191);
  EXPECT_THROW(preprocess(test::bytes_of(file), {form, {}}, small), c10::ValueError);
}

}  // namespace
}  // namespace tandem::data
