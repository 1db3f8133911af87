#include "tandem/data/tensor_dataset.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/data/loader.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::text_of;

Tensor numbers() { return at::arange(3 * 2 * 2 * 5).to(at::kByte).reshape({3, 2, 2, 5}); }

TEST(TensorDataset, GivesTheBytesAndLabelsOfItsTensors) {
  const auto images = numbers();
  const TensorDataset dataset(images.transpose(2, 3), at::tensor({2, 0, 3}, at::kLong), 4);  // not contiguous
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.num_classes(), 4);
  EXPECT_EQ(dataset.image_shape(), (std::array<int64_t, 3>{2, 5, 2}));
  EXPECT_EQ(dataset.class_name(3), "3");
  EXPECT_EQ(dataset.describe(), "tensors  4 classes · 3 images in memory");
  constexpr std::array<int64_t, 3> labels = {2, 0, 3};
  for (int64_t i = 0; i < 3; ++i) {
    auto pixels = at::empty({2, 5, 2}, at::kByte);
    EXPECT_EQ(dataset.read(i, {pixels.mutable_data_ptr<uint8_t>(), 20}), labels[i]);
    EXPECT_TRUE(pixels.equal(images[i].transpose(1, 2))) << i;
  }
}

TEST(TensorDataset, ALoaderReadsIt) {
  const TensorDataset dataset(numbers(), at::tensor({2, 0, 3}, at::kLong), 4);
  Loader loader(dataset, {.batch = 3, .shuffle = false, .augment = no_augmentation()});
  loader.start(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.images.sizes(), numbers().sizes());
  EXPECT_TRUE(batch.labels.equal(at::tensor({2, 0, 3}, at::kLong)));
}

TEST(TensorDataset, SaysWhatIsWrong) {
  const auto images = numbers(), labels = at::tensor({2, 0, 3}, at::kLong);
  const auto fault = [](const Tensor& of_images, const Tensor& of_labels, int64_t classes) {
    return text_of([&] { TensorDataset(of_images, of_labels, classes); });
  };
  EXPECT_EQ(fault(images.to(at::kFloat), labels, 4), "images are Float, wanted uint8");
  EXPECT_EQ(fault(images, labels.to(at::kInt), 4), "labels are Int, wanted int64");
  EXPECT_EQ(fault(images[0], labels, 4),
            "images are [2, 2, 5], wanted [N, channels, height, width] of at least one image");
  EXPECT_EQ(fault(images, labels.slice(0, 1), 4), "labels are [2] for 3 images, wanted [3]");
  EXPECT_EQ(fault(images, labels, 0), "num_classes is 0, wanted 1 or more");
  EXPECT_EQ(fault(images, labels, 3), "labels[2] is 3, wanted 0..2: correct the label, or raise num_classes");
  EXPECT_EQ(fault(images, labels - 1, 3), "labels[1] is -1, wanted 0..2: correct the label, or raise num_classes");
  const TensorDataset dataset(images, labels, 4);
  std::vector<uint8_t> pixels(20);
  EXPECT_EQ(text_of([&] { dataset.read(3, pixels); }), "sample index is 3, wanted 0..2");
}

}  // namespace
}  // namespace tandem::data
