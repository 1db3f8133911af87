#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tandem/base/finite.h"
#include "tandem/train/checkpoint_store.h"
#include "tests/cli/run_command.h"
#include "tests/support/files.h"

// Settings with which training leaves the finite numbers. TANDEM_BLOW_UPS=60 tries all of them, the default a few.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using test::run_tandem;
using Words = std::vector<std::string>;

struct Kind {
  Words words;
  bool is_cured_by_the_rate = true;
};

/// Ways to a rate that is too high, on 1 to 3 ranks, and scores or weights that are too large by themselves.
std::vector<Kind> kinds() {
  const Words rates = {"train.lr=1e39", "train.lr=1e300", "train.lr=1e30"};
  const std::vector<Words> forms = {
      {"model=mlp", "head=softmax"},
      {"model=mlp", "head=softmax", "head.fused_update=true"},
      {"model=mlp", "head=softmax", "train.clip=1"},
      {"model=mlp", "head=softmax", "head.parallel=naive"},
      {"model=mlp", "head=softmax", "train.precision=bf16"},
      {"model=mlp", "head=softmax", "head.precision=bf16", "train.optimizer=adamw"},
      {"model=mlp", "head=l-softmax"},
      {"model=mlp", "head=softmax", "head.sample=0.5", "head.lazy=exact"},
      {"model=resnet_glyph", "head=softmax"},
      {"model=resnet_glyph", "head=softmax", "head.fused_update=true", "train.momentum=0", "train.nesterov=false"},
      {"model=mlp", "head=softmax", "train.optimizer=adamw", "train.skip_nonfinite=2"},
      {"model=mlp", "head=sphereface", "train.weight_decay=1e30"},
      {"model=mlp", "head=softmax", "train.schedule=cosine"},
      {"model=mlp", "head=softmax", "train.momentum=0.99", "train.skip_nonfinite=1"},
      {"model=mlp", "head=softmax", "head.smoothing=0.1"},
      {"model=mlp", "head=softmax", "train.schedule=step", "train.milestones=9"},
      {"model=mlp", "head=softmax", "head.keep_bytes=1M"},
      {"model=resnet_glyph", "head=softmax", "train.precision=bf16"},
  };
  std::vector<Kind> all;
  for (size_t i = 0; i < rates.size() * forms.size(); ++i) {
    Kind kind{forms[i % forms.size()]};
    kind.words.push_back(rates[(i / forms.size() + i) % rates.size()]);
    kind.words.push_back("ranks=" + std::to_string(1 + (i + i / forms.size()) % 3));
    all.push_back(kind);
  }
  for (const int ranks : {1, 3}) {
    const auto on = "ranks=" + std::to_string(ranks);
    all.push_back({{"model=mlp", "head=cosface", "head.scale=1e39", on}, false});
    all.push_back({{"model=mlp", "head=arcface", "head.scale=1e300", on}, false});
    all.push_back({{"model=mlp", "head=normalised", "head.scale=3e38", "head.precision=bf16", on}, false});
  }
  return all;
}

size_t how_many(size_t all) {
  const char* wanted = std::getenv("TANDEM_BLOW_UPS");
  return std::min(all, wanted == nullptr ? size_t{5} : static_cast<size_t>(std::atoi(wanted)));
}

/// Names of tensors in the folder's checkpoints that are not finite, those set aside too.
std::vector<std::string> nonfinite_in(const fs::path& folder) {
  std::vector<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const storage::SafetensorsFile file(entry.path());
    for (const auto& name : file.names()) {
      if (!all_finite(file.read(name))) names.push_back(entry.path().string() + ": " + name);
    }
  }
  return names;
}

std::string joined(const Words& words) {
  std::string text;
  for (const auto& word : words) text += word + " ";
  return text;
}

TEST(BlowUp, EndsWith80SavesNothingThatIsNotFiniteAndCanBeResumed) {
  const auto all = kinds();
  EXPECT_EQ(all.size(), 60u);
  const size_t count = how_many(all.size());
  for (size_t i = 0; i < count; ++i) {
    const auto& kind = all[i * all.size() / count];
    const test::TemporaryFolder folder;
    Words job = {"train",
                 "data.classes=50",
                 "data.train_fonts=bkai,gkai,noto-sans",
                 "data.test_fonts=ukai",
                 "report.compare=false",
                 "train.batch=16",
                 "embedding=16",
                 "checkpoint.every=1",
                 "train.steps=4",
                 "threads=1",
                 "resume=auto",
                 "out=" + folder.path().string()};
    Words bad = job;
    if (std::ranges::none_of(kind.words, [](const auto& word) { return word.starts_with("train.schedule="); }))
      bad.push_back("train.schedule=constant");
    bad.insert(bad.end(), kind.words.begin(), kind.words.end());
    const auto ended = run_tandem(bad);
    EXPECT_EQ(ended.status, 80) << joined(bad) << "\n" << ended.err;
    EXPECT_NE(ended.err.find("finite number"), std::string::npos) << joined(bad) << "\n" << ended.err;
    EXPECT_EQ(nonfinite_in(folder.path()), Words()) << joined(bad);
    if (!kind.is_cured_by_the_rate) continue;
    auto sane = bad;
    for (const auto* word : {"train.lr=0.001", "train.weight_decay=0"}) sane.emplace_back(word);
    std::erase_if(sane, [](const auto& word) { return word.starts_with("train.lr=1") || word.ends_with("=1e30"); });
    const auto resumed = run_tandem(sane);
    EXPECT_EQ(resumed.status, 0) << joined(sane) << "\n" << resumed.err;
    EXPECT_EQ(nonfinite_in(folder.path()), Words()) << joined(sane);
  }
}

TEST(BlowUp, EveryProcessEndsWith80) {
  const test::TemporaryFolder folder;
  const auto ended =
      run_tandem({"launch", "-n", "3", "--", "train", "data.classes=50", "data.train_fonts=bkai,gkai",
                  "data.test_fonts=ukai", "report.compare=false", "train.batch=16", "embedding=16", "model=mlp",
                  "train.lr=1e39", "train.steps=1", "threads=1", "out=" + folder.path().string()});
  EXPECT_EQ(ended.status, 80) << ended.err;
  EXPECT_EQ(ended.err.find("was killed"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace tandem::cli
