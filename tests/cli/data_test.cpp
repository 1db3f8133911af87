#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/data/record/image_record.h"
#include "tandem/job/job.h"
#include "tandem/storage/record_io.h"
#include "tests/cli/run_command.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"

// What the program says of the data that it is given.
namespace tandem::cli {
namespace {

using test::bytes_of;
using test::run_tandem;
using Words = std::vector<std::string>;

class DataRun : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Three classes of six images each.
  void write_images(const std::string& name) {
    for (const std::string label : {"a", "b", "c"}) {
      for (int i = 0; i < 6; ++i) test::spill(image(name, label, i), image_bytes(i));
    }
  }
  std::filesystem::path image(const std::string& name, const std::string& label, int i) const {
    return folder_ / (name + "/" + label + "/" + std::to_string(i) + ".jpg");
  }
  static std::string image_bytes(int seed) {
    return test::jpeg_of(32, 32, test::textured(32, 32, 3, static_cast<uint64_t>(seed)));
  }

  test::Ended train(const Words& more) const {
    Words words = {"train", "model=mlp", "embedding=8", "report.compare=false", "threads=1", "out=" + path("run")};
    words.insert(words.end(), more.begin(), more.end());
    return run_tandem(words);
  }

  test::TemporaryFolder folder_;
};

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(DataRun, AFolderMayMoveAndItsClassesMayNot) {
  write_images("images");
  const Words more = {"train.batch=5", "train.steps=3"};
  const auto with = [&](const std::string& data, Words words) {
    words.push_back("data=images:" + data);
    words.insert(words.end(), more.begin(), more.end());
    return train(words);
  };
  ASSERT_EQ(with(path("images"), {}).status, 0);
  std::filesystem::rename(folder_ / "images", folder_ / "moved");
  const auto moved = with(path("moved") + "/", {"resume=auto"});
  EXPECT_EQ(moved.status, 0) << moved.err;
  EXPECT_NE(moved.err.find("goes on after step 3\n"), std::string::npos) << moved.err;
  const Words eval = {"eval", "resume=" + path("run"), "data=images:" + path("moved")};
  EXPECT_EQ(run_tandem(eval).status, 0);
  std::filesystem::rename(folder_ / "moved/a", folder_ / "moved/z");  // as many classes, with other labels
  const auto renamed = with(path("moved"), {"resume=auto"});
  EXPECT_EQ(renamed.status, 78);
  EXPECT_NE(renamed.err.find("is of another job: class_names is "), std::string::npos) << renamed.err;
  const auto tested = run_tandem(eval);
  EXPECT_EQ(tested.status, 65);
  EXPECT_NE(tested.err.find("moved/z' is none of the model's 3 classes, wanted one of them, as 'a'"), std::string::npos)
      << tested.err;
}

TEST_F(DataRun, OddImagesAreToldOnceForTheJob) {
  write_images("images");
  for (const auto& [label, i] : {std::pair("a", 1), {"c", 5}}) {  // the second is held out
    auto bytes = image_bytes(i);
    bytes.insert(bytes.find("\xFF\xDA"), "stray");
    test::spill(image("images", label, i), bytes);
  }
  const std::string line = "warning: 2 of 18 images break the rules of their format, with all pixels there: image '" +
                           image("images", "a", 1).string() +
                           "': Corrupt JPEG data: 5 extraneous bytes before marker 0xda\n";
  const Words job = {"data=images:" + path("images"), "data.hold_out=6", "train.batch=5", "train.epochs=2"};
  auto words = job;
  words.emplace_back("ranks=2");
  const auto threads = train(words);
  EXPECT_EQ(threads.status, 0) << threads.err;
  EXPECT_EQ(times(threads.err, line), 1U) << threads.err;
  std::filesystem::remove_all(folder_ / "run");
  words = {"launch", "-n", "2", "--"};
  for (const auto& word : test::tandem_command(
           {"train", "model=mlp", "embedding=8", "report.compare=false", "threads=1", "out=" + path("run")})) {
    words.push_back(word);
  }
  words.insert(words.end(), job.begin(), job.end());
  const auto processes = run_tandem(words);
  EXPECT_EQ(processes.status, 0) << processes.err;
  EXPECT_EQ(times(processes.err, line), 1U) << processes.err;
  EXPECT_EQ(times(processes.err, "break the rules"), 1U) << processes.err;
}

TEST_F(DataRun, ADamagedImageEndsTrainingAndIsNamed) {
  write_images("images");
  const auto bytes = image_bytes(2);
  test::spill(image("images", "b", 2), bytes.substr(0, bytes.size() / 2) + "\xFF\xD9");
  const auto ended = train({"data=images:" + path("images"), "train.batch=5", "train.epochs=3", "ranks=2"});
  EXPECT_EQ(ended.status, 65);
  const auto fault = "error: image '" + image("images", "b", 2).string() +
                     "' is a JPEG that cannot be decoded (Corrupt JPEG data: premature end of data segment) (rank ";
  EXPECT_NE(ended.err.find(fault), std::string::npos) << ended.err;
}

TEST_F(DataRun, WrongFoldersAreErrors) {
  write_images("up/photos");
  const auto above = train({"data=images:" + path("up")});
  EXPECT_EQ(above.status, 65);
  EXPECT_EQ(above.err, "error: image folder '" + path("up") +
                           "' has one class, 'photos', wanted two or more: did you mean '" + path("up/photos") +
                           "'?\n");
}

TEST_F(DataRun, NamesOfFilesSteerNoTerminal) {
  write_images("images");
  test::spill(folder_ / "images/a/\x1b]0;x\a.jpg", "no image");
  const auto ended = train({"data=images:" + path("images")});
  EXPECT_EQ(ended.status, 65);
  EXPECT_EQ(ended.err, "error: image '" + path("images/a/") + "\\x1b]0;x\\x07.jpg' is neither JPEG nor PNG\n");
}

TEST_F(DataRun, FacesKeepTheSizeThatTheirFolderSays) {
  std::filesystem::create_directory(folder_ / "faces");
  storage::RecordWriter writer(folder_ / "faces/train.rec", folder_ / "faces/train.idx");
  for (int i = 0; i < 8; ++i) {
    const auto image = image_bytes(i);
    writer.write(static_cast<uint64_t>(i),
                 data::pack_image_record({.label = static_cast<float>(i % 2), .image = bytes_of(image)}));
  }
  writer.close();
  const auto side = [&](const Words& words) {
    settings::Settings settings(job::schema());
    settings.apply(Words{"data=faces:" + path("faces")});
    settings.apply(words);
    auto job = job::read_job(settings);
    EXPECT_EQ(shape_of(job).image[2], open_data(job).train->image_shape()[2]);
    return job.settings.get_int("data.size");
  };
  EXPECT_EQ(side({}), 32);
  test::spill(folder_ / "faces/property", "2,112,112\n");
  EXPECT_EQ(side({}), 112);
  EXPECT_EQ(side({"head.classes=9"}), 112);
  EXPECT_EQ(side({"data.size=32"}), 32);
  const auto ended = train({"data=faces:" + path("faces"), "train.batch=4", "train.steps=1", "data.size=16"});
  EXPECT_NE(ended.err.find(" · scaled from 112 x 112 to 16 x 16, data.size=112 keeps them\n"), std::string::npos)
      << ended.err;
}

/// `count` records of CIFAR-10, whose class is seen from their brightness.
std::string cifar_records(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i % 10 * 25));
  return all;
}

TEST_F(DataRun, CifarIsTrainedOnAsItIsPublished) {
  const auto batches = folder_ / "ten/cifar-10-batches-bin";
  for (int i = 1; i <= 5; ++i) test::spill(batches / ("data_batch_" + std::to_string(i) + ".bin"), cifar_records(20));
  test::spill(batches / "test_batch.bin", cifar_records(10));
  const auto ended = train({"data=cifar10:" + path("ten"), "data.mean=cifar", "data.std=cifar", "train.batch=20",
                            "train.steps=10", "data.affine=0", "data.shift=0"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(times(ended.err, "cifar10  10 classes · 100 images, 10 to test\n"), 1U) << ended.err;
  const auto eval = run_tandem({"eval", path("run"), "--json", "-"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  EXPECT_EQ(nlohmann::json::parse(eval.out).at("classes").at(3).at("name"), "cat");
}

TEST_F(DataRun, AnotherOrientationIsAnotherJob) {
  write_images("images");
  const Words job = {"data=images:" + path("images"), "train.batch=5", "train.steps=3"};
  ASSERT_EQ(train(job).status, 0);
  auto words = job;
  words.insert(words.end(), {"resume=auto", "data.orientation=stored"});
  const auto resumed = train(words);
  EXPECT_EQ(resumed.status, 78);
  EXPECT_NE(resumed.err.find("is of another job: data.orientation is exif, wanted stored"), std::string::npos)
      << resumed.err;
}

TEST_F(DataRun, AFolderWithoutTheKindOfItsDataIsUnderstood) {
  write_images("images");
  test::spill(folder_ / "faces/train.rec", "");
  for (const auto& [folder, kind] : {std::pair("images", "images"), {"faces", "faces"}}) {
    const auto ended = train({"data=" + path(folder)});
    EXPECT_EQ(ended.status, 78);
    EXPECT_EQ(ended.err,
              "error: data is '" + path(folder) +
                  "', wanted glyphs, synthetic, images:DIR, faces:DIR, market1501:DIR, cifar10:DIR, cifar100:DIR, "
                  "mnist:DIR or fashion:DIR: did you mean data=" +
                  kind + ":" + path(folder) + "?\n");
  }
}

TEST_F(DataRun, AFolderThatMayBeSplitOrNotIsTold) {
  write_images("images");
  test::spill(folder_ / "images/train/steam/1.jpg", image_bytes(1));
  const auto ended = train({"data=images:" + path("images")});
  EXPECT_EQ(ended.status, 65);
  EXPECT_NE(ended.err.find(": set data.layout=split to train on the sub-folders of 'train', or data.layout=flat if "),
            std::string::npos)
      << ended.err;
  const auto flat = train({"data=images:" + path("images"), "data.layout=flat", "train.batch=5", "train.steps=1"});
  EXPECT_EQ(flat.status, 0) << flat.err;
}

TEST_F(DataRun, LargePicturesAtTheSizeOfCharactersAreTold) {
  for (int i = 0; i < 10; ++i) {
    test::spill(image("images", i < 5 ? "a" : "b", i), test::jpeg_of(120, 100 + i, 1, 2, 3));
  }
  const Words job = {"data=images:" + path("images"), "train.batch=4", "train.steps=1"};
  const std::string line =
      "warning: images have 105 pixels on their shorter side (median) and are scaled to 32, which suits characters: a "
      "larger data.size keeps more of a photograph\n";
  EXPECT_EQ(times(train(job).err, line), 1U);
  auto words = job;
  words.emplace_back("data.size=32");
  EXPECT_EQ(times(train(words).err, "photograph"), 0U);
}

TEST_F(DataRun, AFewStepsAndImagesLeftOutAreTold) {
  write_images("images");
  const auto ended = train({"data=images:" + path("images"), "train.batch=10"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(times(ended.err,
                  "warning: each epoch leaves out 5 of 15 images, others each time: they fill no batch of 10; a "
                  "smaller train.batch leaves out fewer\n"),
            1U)
      << ended.err;
  EXPECT_EQ(times(ended.err,
                  "warning: training is 3 steps in all (train.epochs is 3, 1 an epoch), too few to learn much: "
                  "raise train.epochs, set train.steps, or lower train.batch\n"),
            1U)
      << ended.err;
  const auto large = train({"data=images:" + path("images"), "out=" + path("large")});
  EXPECT_EQ(large.status, 78);
  EXPECT_NE(large.err.find("error: train.batch is 128, wanted at most the number of images, 15: lower train.batch\n"),
            std::string::npos)
      << large.err;
}

}  // namespace
}  // namespace tandem::cli
