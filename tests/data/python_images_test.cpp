#include <gtest/gtest.h>

#include "tandem/data/image/image_decoder.h"
#include "tandem/data/image/image_planes.h"
#include "tandem/data/image/random_crop.h"
#include "tandem/data/image/resize.h"
#include "tests/support/python.h"

// Pictures as Python's Pillow gives them.
namespace tandem::data {
namespace {

using Bytes = std::vector<uint8_t>;

/// The largest difference, and the mean.
struct Difference {
  int most = 0;
  double mean = 0;
};

Bytes bytes_of(const Tensor& planes) {
  const auto flat = planes.contiguous();
  return {flat.data_ptr<uint8_t>(), flat.data_ptr<uint8_t>() + flat.numel()};
}

Difference difference(const Bytes& ours, const Bytes& theirs) {
  Difference all;
  for (size_t i = 0; i < ours.size(); ++i) {
    const int one = std::abs(int{ours[i]} - int{theirs[i]});
    all.most = std::max(all.most, one);
    all.mean += one / static_cast<double>(ours.size());
  }
  return all;
}

class PythonImages : public testing::Test {
 protected:
  void SetUp() override {
    made_ = test::ask_python("images.py", {folder_.path().string()});
    if (made_.missing) GTEST_SKIP() << "no oracle: " << made_.text;
    for (const auto& [key, planes] : made_.tensors) {
      if (key.ends_with("/whole")) names_.push_back(key.substr(0, key.size() - 6));
    }
    ASSERT_EQ(names_.size(), 200U);
  }

  const Tensor& theirs(const std::string& name, const std::string& what) { return made_.tensors.at(name + "/" + what); }

  Bytes whole(const std::string& name) {
    const auto file = test::slurp(folder_ / name);
    const auto image = decode_image(test::bytes_of(file));
    EXPECT_EQ(image.oddity, "") << name;
    const auto& planes = theirs(name, "whole");
    Bytes ours(static_cast<size_t>(planes.numel()));
    EXPECT_EQ(planes.size(1), image.turn.transposed ? image.width : image.height) << name;
    resize_to_planes(image, {planes.size(1), planes.size(2)}, ours);
    return ours;
  }

  Bytes scaled(const std::string& name) {
    const auto file = test::slurp(folder_ / name);
    const auto side = theirs(name, "scaled").size(1);
    Bytes ours(static_cast<size_t>(3 * side * side));
    read_planes(test::bytes_of(file), {side, side}, ours);
    return ours;
  }

  /// The whole picture in the form that Pillow has given it.
  Difference of_whole(const std::string& name, const std::string& what, ImageForm form) {
    const auto file = test::slurp(folder_ / name);
    const auto& planes = theirs(name, what);
    form.height = planes.size(1), form.width = planes.size(2), form.reducing_gap = 0;
    Bytes ours(static_cast<size_t>(planes.numel()));
    read_planes(test::bytes_of(file), form, ours);
    return difference(ours, bytes_of(planes));
  }

  const test::TemporaryFolder folder_;
  test::OracleAnswer made_;
  std::vector<std::string> names_;
};

TEST_F(PythonImages, PicturesAreThoseOfPillow) {
  int reduced = 0;
  for (const auto& name : names_) {
    EXPECT_EQ(difference(whole(name), bytes_of(theirs(name, "whole"))).most, 0) << name;
    const auto ours = scaled(name);
    const auto from_whole = difference(ours, bytes_of(theirs(name, "scaled")));
    if (!made_.tensors.contains(name + "/reduced")) {
      EXPECT_LE(from_whole.most, 1) << name;
      continue;
    }
    EXPECT_LE(difference(ours, bytes_of(theirs(name, "reduced"))).most, 1) << name;
    EXPECT_LE(from_whole.most, 12) << name;
    EXPECT_LE(from_whole.mean, 2) << name;
    reduced += from_whole.most > 1 ? 1 : 0;
  }
  EXPECT_GT(reduced, 20);
}

TEST_F(PythonImages, PartsAreThoseOfTorchvision) {
  int compared = 0;
  for (const auto& name : names_) {
    const auto file = test::slurp(folder_ / name);
    auto image = decode_image(test::bytes_of(file));
    if (image.turn != Turn{}) continue;  // parts are of the stored picture
    const auto& planes = theirs(name, "part");
    cut(image, {image.width / 5, image.height / 7, std::max<int64_t>(1, image.width / 2),
                std::max<int64_t>(1, image.height * 2 / 3)});
    Bytes ours(static_cast<size_t>(planes.numel()));
    resize_to_planes(image, {planes.size(1), planes.size(2)}, ours);
    EXPECT_LE(difference(ours, bytes_of(planes)).most, 1) << name;
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST_F(PythonImages, FormsAreThoseOfPillow) {
  for (const auto& name : names_) {
    EXPECT_EQ(of_whole(name, "grey", {.colours = Colours::grey}).most, 0) << name;
    EXPECT_EQ(of_whole(name, "nearest", {.filter = Filter::nearest}).most, 0) << name;
    EXPECT_LE(of_whole(name, "cropped", {.fit = Fit::crop}).most, 1) << name;
    const auto bicubic = of_whole(name, "bicubic", {.filter = Filter::bicubic});
    const bool is_soft = name.ends_with(".jpg") && !name.starts_with("jpeg_ycck");  // the others overshoot
    EXPECT_LE(bicubic.most, is_soft ? 1 : 30) << name;
    EXPECT_LE(bicubic.mean, is_soft ? 0.5 : 4) << name;
  }
}

}  // namespace
}  // namespace tandem::data
