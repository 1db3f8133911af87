#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tandem/comm/process_group.h"
#include "tandem/storage/safetensors.h"
#include "tandem/train/checkpoint.h"
#include "tests/cli/run_command.h"
#include "tests/data/image_files.h"
#include "tests/support/files.h"

// What was trained is used: by other programs' folders, on other images, by other numbers of ranks.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::run_here;
using Words = std::vector<std::string>;

/// Ends as the constructor's result, or stops the test.
json result(Words words) {
  words.insert(words.end(), {"--json", "-"});
  const auto ended = run_here(words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  return ended.status == 0 ? json::parse(ended.out) : json();
}

std::vector<std::string> best_of(const json& result) {
  std::vector<std::string> names;
  for (const auto& one : result["predictions"]) names.push_back(one["classes"][0]["name"]);
  return names;
}

void expect_near(const json& found, const json& expected) {
  ASSERT_EQ(found["predictions"].size(), expected["predictions"].size());
  for (size_t i = 0; i < found["predictions"].size(); ++i) {
    const auto &one = found["predictions"][i], &other = expected["predictions"][i];
    EXPECT_EQ(one["path"], other["path"]);
    ASSERT_EQ(one["classes"].size(), other["classes"].size());
    for (size_t place = 0; place < one["classes"].size(); ++place) {
      EXPECT_EQ(one["classes"][place]["name"], other["classes"][place]["name"]);
      EXPECT_NEAR(one["classes"][place]["score"], other["classes"][place]["score"], 1e-5);
    }
  }
}

/// A model of three colours, trained once; the folder of its images has gone.
class UseRun : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TemporaryFolder>();
    write_colours("pics", 12);
    const auto ended = run_here({"train", "data=images:" + path("pics"), "data.size=12", "model=mlp", "embedding=8",
                                 "train.batch=9", "train.epochs=40", "train.lr=0.05", "threads=1", "ranks=2",
                                 "report.compare=false", "data.affine=0", "data.shift=0", "out=" + path("run")});
    ASSERT_EQ(ended.status, 0) << ended.err;
    fs::rename(*folder_ / "pics", *folder_ / "moved");
    write_colours("new", 3);
    ASSERT_EQ(run_here({"reshard", path("run"), "merge=" + path("merged.safetensors")}).status, 0);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  /// Red, green and blue of several shades, a JPEG and PNGs, wider than high.
  static void write_colours(const std::string& name, int images) {
    for (const std::string label : {"blue", "green", "red"}) {
      for (int i = 0; i < images; ++i) {
        const auto light = static_cast<uint8_t>(140 + 9 * i), dark = static_cast<uint8_t>(20 + 3 * i);
        const uint8_t red = label == "red" ? light : dark, green = label == "green" ? light : dark;
        const uint8_t blue = label == "blue" ? light : dark;
        const auto place = *folder_ / name / label / std::to_string(i);
        i == 0 ? test::spill(place.string() + ".jpg", test::jpeg_of(20, 14, red, green, blue))
               : test::spill(place.string() + ".png", test::png_of(20, 14, red, green, blue));
      }
    }
  }

  /// A merged file whose card says something else.
  static std::string with_card(const std::function<void(json&)>& change) {
    const storage::SafetensorsFile merged(path("merged.safetensors"));
    auto metadata = merged.metadata();
    auto card = json::parse(metadata.at(train::kCardKey));
    change(card);
    metadata[train::kCardKey] = card.dump();
    std::vector<storage::NamedTensor> tensors;
    for (const auto& name : merged.names()) tensors.push_back({name, merged.read(name)});
    storage::write_safetensors(path("changed.safetensors"), tensors, metadata);
    return path("changed.safetensors");
  }

  /// The same for its tensors.
  static std::string with_tensors(const std::string& name,
                                  const std::function<void(std::vector<storage::NamedTensor>&)>& change) {
    const storage::SafetensorsFile merged(path("merged.safetensors"));
    std::vector<storage::NamedTensor> tensors;
    for (const auto& tensor : merged.names()) tensors.push_back({tensor, merged.read(tensor)});
    change(tensors);
    storage::write_safetensors(path(name), tensors, merged.metadata());
    return path(name);
  }

  enum class Damage { cut, flipped };

  /// A copy of the run whose newest checkpoint is damaged; the names of that one and of the one before.
  static std::pair<std::string, std::string> damaged_run(const std::string& name, Damage damage) {
    fs::copy(*folder_ / "run", *folder_ / name, fs::copy_options::recursive);
    const train::CheckpointStore store(path(name + "/checkpoints"));
    const auto steps = store.list();
    EXPECT_EQ(steps.size(), 2u);
    const auto file = store.path(steps.front()) / "rank_0001.safetensors";
    if (damage == Damage::cut) {
      fs::resize_file(file, 100);
    } else {
      auto bytes = test::slurp(file);
      uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof header);
      for (size_t at = sizeof header + header; at < bytes.size(); ++at) bytes[at] ^= 1;
      test::spill(file, bytes);
    }
    return {store.path(steps.front()).filename().string(), store.path(steps.back()).filename().string()};
  }

  /// Ends with this status and one line, which is returned.
  static std::string told(const Words& words, int status) {
    const auto ended = run_here(words);
    EXPECT_EQ(ended.status, status) << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
    return ended.err;
  }

  static std::unique_ptr<test::TemporaryFolder> folder_;
};

std::unique_ptr<test::TemporaryFolder> UseRun::folder_;

TEST_F(UseRun, PredictsByAnyOfItsFilesOnAnyNumberOfRanks) {
  const auto expected = result({"predict", path("run"), path("new"), "top=2"});
  EXPECT_EQ(best_of(expected), (Words{"blue", "blue", "blue", "green", "green", "green", "red", "red", "red"}));
  EXPECT_EQ(expected["predictions"][3]["path"], path("new/green/0.jpg"));
  EXPECT_EQ(expected["predictions"][3]["classes"].size(), 2u);
  const auto step = expected["model"].get<std::string>();
  for (const auto& model : {path("run/checkpoints"), step, path("merged.safetensors")}) {
    expect_near(result({"predict", model, path("new"), "top=2"}), expected);
  }
  expect_near(result({"predict", "resume=" + path("run"), path("new"), "top=2"}), expected);
  for (const std::string ranks : {"ranks=1", "ranks=3"}) {
    expect_near(result({"predict", path("run"), path("new"), "top=2", ranks}), expected);
  }
  const auto all = result({"predict", path("run"), path("new/red/0.jpg")})["predictions"][0]["classes"];
  ASSERT_EQ(all.size(), 3u);  // as many as there are
  EXPECT_NEAR(all[0]["score"].get<double>() + all[1]["score"].get<double>() + all[2]["score"].get<double>(), 1, 1e-5);
}

TEST_F(UseRun, PredictsIntoATable) {
  const auto ended = run_here({"predict", path("run"), path("new/red/0.jpg"), "top=1", "--csv", path("p.csv")});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find(path("new/red/0.jpg") + "  red "), std::string::npos) << ended.out;
  const auto csv = test::slurp(path("p.csv"));
  EXPECT_TRUE(csv.starts_with("path,place,name,score\r\n" + path("new/red/0.jpg") + ",1,red,")) << csv;
}

TEST_F(UseRun, EachFieldOfThePreprocessingCounts) {
  test::spill(path("lying.jpg"),
              test::with_exif(test::jpeg_of(131, 204, test::textured(131, 204, 3, 5)), test::exif_of(6)));
  const auto scores = [&](const std::string& model) {
    return result({"predict", model, path("lying.jpg")})["predictions"][0]["classes"];
  };
  const auto plain = scores(path("merged.safetensors"));
  EXPECT_EQ(scores(with_card([](json&) {})), plain);
  const std::vector<std::pair<std::string, json>> changes = {
      {"orientation", "stored"}, {"resize", "crop"},  {"filter", "nearest"},
      {"antialias", false},      {"reducing_gap", 0}, {"colours", "bgr"},
      {"inverted", true},        {"mean", {0.4}},     {"std", {0.2, 0.3, 0.4}}};
  for (const auto& [key, value] : changes) {
    EXPECT_NE(scores(with_card([&](json& card) { card["preprocessing"][key] = value; })), plain) << key;
  }
  const auto named = with_card([](json& card) { card["classes"]["names"] = {"x", "y", "z"}; });
  EXPECT_LE(best_of(result({"predict", named, path("new/red/0.jpg")}))[0], "z");
  EXPECT_EQ(best_of(result({"predict", named, path("new/red/0.jpg")}))[0], "z");
}

TEST_F(UseRun, WrongCardsAreTold) {
  const auto told = [&](const std::string& key, const json& value) {
    const auto model = with_card([&](json& card) { card["preprocessing"][key] = value; });
    const auto ended = run_here({"predict", model, path("new")});
    EXPECT_EQ(ended.status, 65);
    return ended.err.substr(ended.err.find(": preprocessing") + 2);
  };
  const std::string tail = ": the file is damaged, or of a later version\n";
  EXPECT_EQ(told("filter", "lanczos"),
            "preprocessing.filter is \"lanczos\", wanted nearest, bilinear or bicubic" + tail);
  EXPECT_EQ(told("antialias", nullptr), "preprocessing.antialias is missing, wanted true or false" + tail);
  EXPECT_EQ(told("std", {0.0}), "preprocessing.std is [0.0], wanted a list of positive numbers" + tail);
  EXPECT_EQ(told("std", {1, 1}), "preprocessing.std has 2 numbers, wanted 1 or 3" + tail);
  EXPECT_EQ(told("width", 9), "preprocessing.width is 9, wanted 12 as the model's input has" + tail);
  EXPECT_EQ(told("colours", "grey"),
            "preprocessing.colours is grey, wanted 3 channels as the model's input has" + tail);
}

TEST_F(UseRun, TestsOnImagesAnywhere) {
  const auto held_out = result({"eval", path("run"), "data=images:" + path("moved")});
  EXPECT_EQ(held_out["test_images"], 6);  // two of twelve of each class
  const auto elsewhere = result({"eval", path("merged.safetensors"), "data=images:" + path("new")});
  EXPECT_EQ(elsewhere["test_images"], 9);
  EXPECT_EQ(elsewhere["top1"], 1.0);
  EXPECT_EQ(elsewhere["num_classes"], 3);
  EXPECT_EQ(elsewhere["classes"][2], json::parse(R"({"name": "red", "right": 3, "count": 3})"));
  EXPECT_EQ(elsewhere["confusion"], json::parse("[[3, 0, 0], [0, 3, 0], [0, 0, 3]]"));
  EXPECT_EQ(elsewhere["confused"], json::array());
  fs::create_directories(*folder_ / "other");
  fs::copy(*folder_ / "new/blue", *folder_ / "other/red");
  const auto wrong = result({"eval", path("run"), "data=images:" + path("other"), "ranks=3"});
  EXPECT_EQ(wrong["top1"], 0.0);
  EXPECT_EQ(wrong["classes"], json::parse(R"([{"name": "red", "right": 0, "count": 3}])"));
  EXPECT_EQ(wrong["confused"], json::parse(R"([{"name": "red", "taken_for": "blue", "count": 3}])"));
  ASSERT_EQ(wrong["worst"].size(), 3u);
  EXPECT_EQ(wrong["worst"][0]["taken_for"], "blue");
  EXPECT_GE(wrong["worst"][0]["score"], wrong["worst"][1]["score"]);
}

TEST_F(UseRun, DrawsThePageOfATest) {
  fs::create_directories(*folder_ / "wrong");
  fs::copy(*folder_ / "new/blue", *folder_ / "wrong/green");
  const auto ended =
      run_here({"eval", path("run"), "data=images:" + path("wrong"), "--page", path("page.html"), "--json", "-"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  const auto page = test::slurp(path("page.html"));
  EXPECT_NE(page.find("<title>green is taken for blue in 3 of 3</title>"), std::string::npos);
  EXPECT_NE(page.find("<div>green taken for blue</div>"), std::string::npos);
  EXPECT_NE(page.find("src=\"data:image/png;base64,iVBORw0KGgo"), std::string::npos);
  EXPECT_NE(page.find("<caption>Classes, the weakest first</caption>"), std::string::npos);
}

TEST_F(UseRun, TheReportOfTrainingShowsItsLastTest) {
  const auto trained = test::slurp(path("run/report.html"));
  EXPECT_NE(trained.find("<title>green is right in 2 of 2</title>"), std::string::npos);
  EXPECT_EQ(trained.find("Wrong answers"), std::string::npos);
  const auto ended = run_here({"train", "data=images:" + path("new"), "data.size=12", "model=mlp", "train.batch=3",
                               "train.steps=1", "train.lr=0", "threads=1", "out=" + path("untrained")});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(test::slurp(path("untrained/report.html")).find("<h2>Wrong answers, the surest first</h2>"),
            std::string::npos);
}

TEST_F(UseRun, ComparesFeaturesOfTestImages) {
  for (const std::string ranks : {"ranks=1", "ranks=3"}) {
    const auto found =
        result({"eval", path("run"), "data=images:" + path("new"), "eval.verify=true", "eval.identify=true", ranks});
    EXPECT_EQ(found["verification"]["same"], 9);
    EXPECT_EQ(found["verification"]["different"], 27);
    EXPECT_EQ(found["verification"]["tar"], json::parse("[1.0, 1.0, 1.0, 1.0]"));
    EXPECT_EQ(found["identification"]["mated"], 6);
    EXPECT_EQ(found["identification"]["top"]["1"], 1.0);
  }
  const auto plain = result({"eval", path("run"), "data=images:" + path("new")});
  EXPECT_TRUE(plain["verification"].is_null() && plain["identification"].is_null());
}

/// As of faces: who is in the pictures was not trained, so features alone say who is the same.
TEST_F(UseRun, ImagesOfOtherClassesAreComparedByTheirFeatures) {
  fs::create_directories(*folder_ / "unknown");
  fs::copy(*folder_ / "new/red", *folder_ / "unknown/ruby");
  fs::copy(*folder_ / "new/blue", *folder_ / "unknown/sky");
  const auto data = "data=images:" + path("unknown");
  EXPECT_EQ(told({"eval", path("run"), data}, 65),
            "error: class folder '" + path("unknown/ruby") +
                "' is none of the model's 3 classes, wanted one of them, as 'blue': rename it, or remove it\n");
  for (const std::string ranks : {"ranks=1", "ranks=3"}) {
    const auto found = result({"eval", path("run"), data, "eval.verify=true", "eval.identify=true", ranks});
    EXPECT_TRUE(found["top1"].is_null() && found["classes"].is_null());
    EXPECT_EQ(found["test_images"], 0);
    EXPECT_EQ(found["verification"]["same"], 6);
    EXPECT_EQ(found["verification"]["different"], 9);
    EXPECT_EQ(found["verification"]["tar"], json::parse("[1.0, 1.0, 1.0, 1.0]"));
    EXPECT_EQ(found["identification"]["mated"], 4);
  }
  const auto text = run_here({"eval", path("run"), data, "eval.verify=true"});
  EXPECT_NE(text.err.find(" · none left out · 'ruby' is none of the model's classes: only features count\n"),
            std::string::npos);
  EXPECT_EQ(text.out.find("top-1"), std::string::npos) << text.out;
  result({"embed", path("run"), data, "out=" + path("unknown.npy")});
  EXPECT_TRUE(test::slurp(path("unknown.csv")).ends_with(path("unknown/sky/2.png") + ",1,sky\r\n"));
}

TEST_F(UseRun, WeightsOfPicturesPreparedOtherwiseAreTold) {
  const auto warning = [&](const std::string& weights) {
    const auto ended = run_here({"train", "data=images:" + path("new"), "data.size=12", "model=mlp", "embedding=8",
                                 "train.steps=1", "train.batch=3", "threads=1", "data.mean=0.25", "data.resize=crop",
                                 "model.weights=" + path(weights), "out=" + path("tuned_" + weights)});
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended.err;
  };
  for (const std::string weights : {"run", "merged.safetensors"}) {
    EXPECT_NE(warning(weights).find("warning: model.weights were trained on pictures with data.resize=stretch "
                                    "data.mean=half, this run has data.resize=crop data.mean=0.25\n"),
              std::string::npos);
  }
}

TEST_F(UseRun, EmbedsIntoAFile) {
  const auto told = result({"embed", path("run"), "data=images:" + path("new"), "out=" + path("f.safetensors")});
  EXPECT_EQ(told["count"], 9);
  EXPECT_EQ(told["dim"], 8);
  EXPECT_EQ(told["file"], path("f.safetensors"));
  const storage::SafetensorsFile file(path("f.safetensors"));
  const auto features = file.read("features"), labels = file.read("labels");
  EXPECT_EQ(features.sizes(), (std::vector<int64_t>{9, 8}));
  EXPECT_TRUE(labels.equal(at::tensor(std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2, 2}, at::kInt)));
  const auto texts = [&](const std::string& name) {
    const auto bytes = file.read(name);
    const auto* text = bytes.const_data_ptr<uint8_t>();
    return json::parse(text, text + bytes.numel());
  };
  EXPECT_EQ(texts("class_names"), (json{"blue", "green", "red"}));
  EXPECT_EQ(texts("paths")[8], path("new/red/2.png"));
  result({"embed", path("merged.safetensors"), path("new"), "ranks=3", "out=" + path("g.npy")});
  const auto npy = test::slurp(path("g.npy"));
  const auto rows = at::from_blob(const_cast<char*>(npy.data()) + 128, {9, 8}, at::kFloat);
  EXPECT_TRUE(at::allclose(rows, features, 1e-5, 1e-6));
  EXPECT_TRUE(test::slurp(path("g.csv")).starts_with("path\r\n" + path("new/blue/0.jpg") + "\r\n"));
  result({"embed", path("run"), "data=images:" + path("new"), "out=" + path("h.npy")});
  EXPECT_TRUE(test::slurp(path("h.csv")).ends_with(path("new/red/2.png") + ",2,red\r\n"));
}

TEST_F(UseRun, BadInputIsOneLine) {
  const auto run = path("run");
  EXPECT_EQ(told({"predict", run, path("no.png")}, 65),
            "error: image '" + path("no.png") + "' does not exist, wanted an image or a folder of images\n");
  test::spill(path("text.png"), "no image");
  EXPECT_EQ(told({"predict", run, path("text.png")}, 65),
            "error: image '" + path("text.png") + "' is neither JPEG nor PNG\n");
  EXPECT_EQ(told({"predict", run}, 64),
            "error: predict: no image is given, wanted 'tandem predict RUN IMAGE|FOLDER...'\n");
  EXPECT_EQ(told({"predict", run, path("new"), "top=0"}, 78), "error: top is 0, wanted 1..1000\n");
  EXPECT_EQ(told({"predict", run, path("new"), "train.lr=1"}, 78),
            "error: train.lr is a setting of training, wanted one of those of tandem predict: 'tandem help predict' "
            "lists them\n");
  EXPECT_EQ(
      told({"predict", path("new"), path("new")}, 65),
      "error: '" + path("new") + "' holds no checkpoint, wanted a run's folder, its checkpoints or one of them\n");
  EXPECT_EQ(told({"predict", path("none"), path("new")}, 65),
            "error: '" + path("none") + "' does not exist, wanted a run's folder, a checkpoint, or merged weights\n");
  EXPECT_EQ(told({"embed", run, path("new")}, 78),
            "error: out is '', wanted FILE.safetensors or FILE.npy: give out=features.npy, for example\n");
  EXPECT_EQ(told({"embed", run, path("new"), "data=images:" + path("new"), "out=" + path("x.npy")}, 78),
            "error: data is given, and so are images by their paths, wanted one of both\n");
  EXPECT_EQ(told({"eval", run, path("new")}, 64), "error: argument '" + path("new") +
                                                      "' is no setting, wanted key=value: data=images:" + path("new") +
                                                      " tests on a folder of images\n");
  EXPECT_NE(told({"eval", run, "data=glyphs"}, 65).find("the data are not those that the model was trained for"),
            std::string::npos);
  storage::write_safetensors(path("bare.safetensors"),
                             std::vector<storage::NamedTensor>{{"head.weight", at::zeros({2})}});
  EXPECT_EQ(told({"predict", path("bare.safetensors"), path("new")}, 65),
            "error: '" + path("bare.safetensors") +
                "' does not say what model it is of, wanted weights that 'tandem reshard merge=FILE' has written\n");
}

TEST_F(UseRun, AnEmbedThatFailsKeepsTheOlderFiles) {
  test::spill(path("old.npy"), "older");
  test::spill(path("old.csv"), "older");
  test::spill(path("cut/a.png"), test::png_of(20, 14, 1, 2, 3).substr(0, 60));
  const auto ended = run_here({"embed", path("run"), path("new"), path("cut"), "out=" + path("old.npy")});
  EXPECT_EQ(ended.status, 65);
  EXPECT_NE(ended.err.find("a.png' is a PNG that cannot be decoded"), std::string::npos) << ended.err;
  EXPECT_EQ(test::slurp(path("old.npy")) + test::slurp(path("old.csv")), "olderolder");
  EXPECT_FALSE(fs::exists(path("old.npy.unfinished")));
  result({"embed", path("run"), path("new"), "out=" + path("old.npy")});
  EXPECT_EQ(test::slurp(path("old.npy")).size(), 128U + 9 * 8 * 4);
}

TEST_F(UseRun, ADamagedCheckpointThatIsNamedIsRefused) {
  const auto [step, older] = damaged_run("dam", Damage::cut);
  const auto whole = std::to_string(fs::file_size(path("run/checkpoints") + "/" + step + "/rank_0001.safetensors"));
  const auto named = path("dam/checkpoints/") + step;
  const auto fault = "is cut short: rank_0001.safetensors has 100 bytes, wanted " + whole;
  const auto error = "error: checkpoint '" + named + "' " + fault + ": name another one, or the run's folder\n";
  const auto data = "data=images:" + path("new");
  EXPECT_EQ(told({"predict", named, path("new"), "top=1"}, 65), error);
  EXPECT_EQ(told({"embed", named, data, "out=" + path("dam.npy")}, 65), error);
  EXPECT_EQ(told({"eval", named, data}, 65), error);
  const auto warning = "warning: checkpoint " + step + " " + fault + "\n";
  const auto tells = warning + "model    " + path("dam/checkpoints/") + older + "\n";
  for (const Words& words :
       {Words{"predict", path("dam"), path("new"), "top=1"},
        Words{"embed", path("dam"), data, "out=" + path("dam.npy")}, Words{"eval", path("dam"), data}}) {
    const auto ended = run_here(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_NE(ended.err.find(tells), std::string::npos) << ended.err;
  }
}

/// The sizes are right, so the fault is found only when the weights are read.
TEST_F(UseRun, ANamedCheckpointWithAWrongByteIsRefused) {
  const auto [step, older] = damaged_run("flipped", Damage::flipped);
  const auto named = path("flipped/checkpoints/") + step;
  for (const std::string ranks : {"ranks=1", "ranks=3"}) {
    const auto ended = run_here({"predict", named, path("new"), "top=1", ranks});
    EXPECT_EQ(ended.status, 65) << ended.err;
    EXPECT_NE(ended.err.find("error: checkpoint '" + named + "' is damaged: "), std::string::npos) << ended.err;
    EXPECT_TRUE(ended.err.ends_with(": name another one, or the run's folder\n")) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
  const auto ended = run_here({"predict", path("flipped"), path("new"), "top=1"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.err.find("model    " + path("flipped/checkpoints/") + older + "\n"), std::string::npos) << ended.err;
}

TEST_F(UseRun, PredictTellsTheFilesThatItPassesOver) {
  fs::create_directories(*folder_ / "mixed");
  fs::copy_file(*folder_ / "new/red/1.png", *folder_ / "mixed/a.png");
  test::spill(path("mixed/b.gif"), "GIF89a");
  test::spill(path("mixed/c.txt"), "text");
  const auto ended = run_here({"predict", path("run"), path("mixed"), path("new/red"), "top=1"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  const auto line = "images   4 without labels · passed over, neither JPEG nor PNG: 2 files, as " + path("mixed/b.gif");
  EXPECT_NE(ended.err.find(line + "\n"), std::string::npos) << ended.err;
}

TEST_F(UseRun, WritesTheRowsToStdout) {
  const Words words = {"predict", path("run"), path("new/red/0.jpg"), "top=1"};
  auto to_stdout = words, to_file = words;
  to_stdout.insert(to_stdout.end(), {"--csv", "-"});
  to_file.insert(to_file.end(), {"--csv", path("rows.csv")});
  const auto ended = run_here(to_stdout);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(run_here(to_file).status, 0);
  EXPECT_EQ(ended.out, test::slurp(path("rows.csv")));
  EXPECT_FALSE(fs::exists("-"));
  to_stdout.insert(to_stdout.end(), {"--json", path("rows.json")});
  EXPECT_EQ(run_here(to_stdout).out, ended.out);
  EXPECT_EQ(json::parse(test::slurp(path("rows.json")))["predictions"].size(), 1u);
}

TEST_F(UseRun, ALineBreakInAFileNameBreaksNoRow) {
  const auto odd = path("line\nbreak.png");
  fs::copy_file(*folder_ / "new/red/1.png", odd);
  const auto ended = run_here({"predict", path("run"), odd, "top=1"});
  EXPECT_EQ(std::ranges::count(ended.out, '\n'), 2) << ended.out;
  EXPECT_NE(ended.out.find(path("line\\x0abreak.png  red ")), std::string::npos) << ended.out;
}

TEST_F(UseRun, AFolderOfDataThatHasMovedIsTold) {
  const auto error = "error: the folder '" + path("pics") +
                     "', on which the model was trained, does not exist: data=images:FOLDER names its new place or "
                     "other images\n";
  EXPECT_EQ(told({"eval", path("run")}, 65), error);
  EXPECT_EQ(told({"embed", path("run"), "out=" + path("x.npy")}, 65), error);
  EXPECT_EQ(told({"train", "resume=" + path("run")}, 65), error);
  EXPECT_EQ(
      told({"train", "resume=" + path("run"), "data=images:" + path("none")}, 65),
      "error: image folder '" + path("none") + "' does not exist, wanted a folder with a sub-folder for each class\n");
}

TEST_F(UseRun, ACardThatNamesTooFewClassesIsRefused) {
  const auto few = with_card([](json& card) { card["classes"]["names"] = {"x", "y"}; });
  EXPECT_EQ(told({"predict", few, path("new")}, 65),
            "error: '" + few +
                "': classes.names has 2 names, wanted 3 as classes.count says: the file is damaged, or of another "
                "program\n");
  const auto none = with_card([](json& card) { card = "no card"; });
  EXPECT_EQ(told({"predict", none, path("new")}, 65),
            "error: '" + none + "' holds no model card: the file is damaged, or of another program\n");
}

TEST_F(UseRun, DamagedMergedWeightsAreBadData) {
  const auto last_line = [&](const std::string& command, const std::string& model) {
    Words words = {command, model, "data=images:" + path("new"), "out=" + path("x.npy")};
    if (command == "predict") words = {command, model, path("new")};
    if (command == "eval") words.pop_back();
    const auto ended = run_here(words);
    EXPECT_EQ(ended.status, 65) << ended.err;
    return ended.err.substr(ended.err.rfind("error: "));
  };
  const std::string tail = " (rank 0 of 2): the file is damaged, use another copy\n";
  const auto lacks = with_tensors("lacks.safetensors", [](auto& tensors) {
    std::erase_if(tensors, [](const auto& one) { return one.name == "head.weight"; });
  });
  const auto small = with_tensors("small.safetensors", [](auto& tensors) {
    for (auto& one : tensors) {
      if (one.name == "head.weight") one.tensor = one.tensor.slice(0, 0, 2);
    }
  });
  for (const std::string command : {"predict", "embed", "eval"}) {
    EXPECT_EQ(
        last_line(command, lacks),
        "error: weights is '" + lacks + "': 'head.weight' is missing there, wanted all weights of this model" + tail);
    EXPECT_EQ(last_line(command, small),
              "error: weights is '" + small + "': 'head.weight' is [2, 8] there, wanted [3, 8]" + tail);
  }
  EXPECT_EQ(told({"predict", path("run/report.html"), path("new")}, 65),
            "error: '" + path("run/report.html") +
                "' is no safetensors file: it does not begin with the length of its header\n");
}

/// As versions before model cards have written it.
TEST_F(UseRun, ACheckpointWithoutACardSaysWhatItLacks) {
  const train::CheckpointStore store(path("run/checkpoints"));
  const train::CheckpointReader reader(store, store.list().front());
  train::TrainingState state{
      .tensors = {}, .identity = reader.manifest().identity, .trainer = reader.manifest().trainer, .card = {}};
  for (const auto& name : reader.names())
    state.tensors.push_back(train::Parameter::replicated(name, reader.read(name)));
  train::CheckpointStore old(path("old/checkpoints"));
  ASSERT_TRUE(train::save_checkpoint(old, reader.manifest().step, state, *comm::make_single_group()));
  fs::copy(path("run/settings.toml"), path("old/settings.toml"));
  const auto ended = run_here({"predict", path("old"), path("new")});
  EXPECT_EQ(ended.status, 65);
  EXPECT_EQ(ended.err, "error: '" + path("old") +
                           "' is of a version that saved neither the names of the classes nor the preprocessing of "
                           "pictures, wanted a checkpoint with a model card: 'tandem train resume=" +
                           path("old") + " out=FOLDER' saves one, even if no step is left\n");
  const auto data = "data=images:" + path("moved");
  EXPECT_EQ(result({"eval", path("old"), data})["top1"], result({"eval", path("run"), data})["top1"]);
  ASSERT_EQ(run_here({"train", "resume=" + path("old"), data, "out=" + path("again")}).status, 0);
  expect_near(result({"predict", path("again"), path("new")}), result({"predict", path("run"), path("new")}));
}

}  // namespace
}  // namespace tandem::cli
