#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/job/job.h"
#include "tandem/settings/settings.h"
#include "tandem/settings/value.h"

namespace tandem::settings {
namespace {

Settings loaded(const std::string& text) {
  Settings settings(job::schema());
  settings.load_toml(text, "job.toml");
  return settings;
}

std::string fault_of(const std::string& text) {
  try {
    loaded(text);
  } catch (const SettingsError& fault) {
    return fault.what();
  }
  return "nothing thrown";
}

TEST(SettingsFile, SectionsAreDottedKeys) {
  const auto settings = loaded(R"(
    ranks = 4
    model = "resnet18"
    [train]
    lr = 1e-2
    steps = 20_000
    nesterov = false
    milestones = [1, 2.5]
    [data]
    name = "images:photos"
    classes = 3755
    train_fonts = ["ukai", "uming"]
    [head]
    name = "softmax"
    scale = 16
  )");
  EXPECT_EQ(settings.get_int("ranks"), 4);
  EXPECT_EQ(settings.get_string("model"), "resnet18");
  EXPECT_EQ(settings.get_float("train.lr"), 0.01);
  EXPECT_EQ(settings.get_int("train.steps"), 20000);
  EXPECT_FALSE(settings.get_bool("train.nesterov"));
  EXPECT_EQ(settings.get_numbers("train.milestones"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(settings.get_string("data"), "images:photos");
  EXPECT_EQ(settings.get_string("data.classes"), "3755");
  EXPECT_EQ(settings.get_list("data.train_fonts"), (std::vector<std::string>{"ukai", "uming"}));
  EXPECT_EQ(settings.get_string("head"), "softmax");
  EXPECT_EQ(settings.get_float("head.scale"), 16);
  EXPECT_TRUE(settings.given("head"));
  EXPECT_FALSE(settings.given("embedding"));
}

TEST(SettingsFile, OtherSpellingsOfTheSame) {
  EXPECT_EQ(loaded("head = \"softmax\"").get_string("head"), "softmax");
  EXPECT_EQ(loaded("train.lr = 0.5").get_float("train.lr"), 0.5);
  EXPECT_EQ(loaded("\"head.scale\" = 8").get_float("head.scale"), 8);
  EXPECT_EQ(loaded("train.steps = 1e3").get_int("train.steps"), 1000);
  EXPECT_NO_THROW(loaded("[train]"));
}

TEST(SettingsFile, FaultsNameTheirPlace) {
  EXPECT_EQ(fault_of("ranks = 1\n[trian]\nlr = 1\n"),
            "job.toml:3:6: setting 'trian.lr' is unknown, wanted one of the settings: did you mean train.lr?");
  EXPECT_EQ(fault_of("[trian]\n"),
            "job.toml:1:1: setting 'trian' is unknown, wanted one of the settings: "
            "--help lists them");
  EXPECT_EQ(fault_of("[train]\nlr = \"fast\"\n"), "job.toml:2:6: train.lr is 'fast', wanted a number");
  EXPECT_EQ(fault_of("ranks = 0"), "job.toml:1:9: ranks is 0, wanted 1..1024");
}

TEST(SettingsFile, WrongTypes) {
  EXPECT_EQ(fault_of("[train]\nnesterov = 1"), "job.toml:2:12: train.nesterov is '1', wanted true or false");
  EXPECT_EQ(fault_of("model = true"),
            "job.toml:1:9: model is 'true', wanted resnet_glyph, resnet18, resnet34, resnet50, vit_tiny, vit_small, "
            "vit_base, mlp, none, darts-v1, "
            "darts-v2, pc-darts, pc-darts-imagenet, p-darts, drnas, drnas-imagenet, nasnet, amoebanet, genotype:FILE "
            "or search:SPACE");
  EXPECT_EQ(fault_of("ranks = [1]"), "job.toml:1:9: ranks is a list, wanted a whole number");
  EXPECT_EQ(fault_of("ranks = 2026-11-21"), "job.toml:1:9: ranks is a date or time, wanted a whole number");
  EXPECT_EQ(fault_of("ranks = inf"), "job.toml:1:9: ranks is 'inf', wanted a whole number");
  EXPECT_EQ(fault_of("data.train_fonts = [[1]]"),
            "job.toml:1:20: data.train_fonts is a list, wanted a list like [\"a\", \"b\"]");
  EXPECT_EQ(fault_of("[[train]]\nlr = 1").substr(0, 41), "job.toml:1:1: setting 'train' is unknown,");
}

TEST(SettingsFile, ValuesInQuotesAndTextsWithout) {
  EXPECT_EQ(fault_of("train.lr = \"0.1\""), "job.toml:1:12: train.lr is '0.1', wanted a number: write 0.1");
  EXPECT_EQ(fault_of("train.batch = \"64\""), "job.toml:1:15: train.batch is '64', wanted a whole number: write 64");
  EXPECT_EQ(fault_of("train.nesterov = \"yes\""),
            "job.toml:1:18: train.nesterov is 'yes', wanted true or false: write true");
  EXPECT_EQ(fault_of("data.train_fonts = \"ukai\""),
            "job.toml:1:20: data.train_fonts is 'ukai', wanted a list like [\"a\", \"b\"]: write [\"ukai\"]");
  EXPECT_EQ(fault_of("train.milestones = \"1,2\""),
            "job.toml:1:20: train.milestones is '1,2', wanted a list like [1.0, 2.5]: write [1.0, 2.0]");
  EXPECT_EQ(fault_of("train.milestones = [1, \"2\"]"),
            "job.toml:1:20: train.milestones is '2', wanted a list like [1.0, 2.5]: write 2.0");
  for (const auto text : {"out = runs/x", "train.nesterov = yes"}) {
    EXPECT_TRUE(fault_of(text).ends_with(": a text stands in quotes, and a truth value is true or false"))
        << fault_of(text);
  }
}

TEST(SettingsFile, AKeyThatIsASectionToo) {
  for (const auto text : {"data = \"synthetic\"\n[data]\nsize = 8\n", "data = \"synthetic\"\ndata.size = 8\n"}) {
    EXPECT_TRUE(
        fault_of(text).ends_with(": a key stands twice; where data, model, head is a section too, write the value "
                                 "as name = ... in the section"))
        << fault_of(text);
  }
}

TEST(SettingsFile, FaultsOfTomlItself) {
  const auto fault = fault_of("ranks = \n[train");
  EXPECT_TRUE(fault.starts_with("job.toml:1:")) << fault;
  EXPECT_TRUE(fault.ends_with(": the file is written in TOML")) << fault;
  EXPECT_NE(fault_of("a = \"\xff\""), "nothing thrown");
  EXPECT_NE(fault_of("ranks = " + std::string(100'000, '[')), "nothing thrown");
  EXPECT_NE(fault_of("ranks = 1\nranks = 2\n"), "nothing thrown");
}

std::string dotted(int parts) {
  std::string key = "a";
  for (int i = 1; i < parts; ++i) key += i % 2 == 0 ? ".a" : " . \"b.b\"";
  return key;
}

TEST(SettingsFile, DeepKeysAreRefusedBeforeTheyAreParsed) {
  const std::string fault = "a key has more than 16 parts, wanted one of the settings: --help lists them";
  EXPECT_EQ(fault_of("ranks = 1\n" + dotted(50'000) + " = 1"), "job.toml:2:1: " + fault);
  EXPECT_EQ(fault_of("[" + dotted(17) + "]"), "job.toml:1:2: " + fault);
  EXPECT_EQ(fault_of("data = {b = 1, " + dotted(17) + " = 2}"), "job.toml:1:16: " + fault);
  EXPECT_EQ(fault_of("x = {y = \"\"\"a\"\"\"\", " + dotted(17) + " = 2}"), "job.toml:1:20: " + fault);
  EXPECT_EQ(fault_of("# it's\nx = ['"
                     "''\n\\''"
                     "', \"\\\"\"]\n" +
                     dotted(17) + " = 2"),
            "job.toml:4:1: " + fault);
  const auto unknown = fault_of(dotted(16) + " = 1");
  EXPECT_NE(unknown.find(" is unknown, wanted one of the settings"), unknown.npos) << unknown;
}

TEST(SettingsFile, DotsInTextsAndCommentsAreNoKeys) {
  const auto settings =
      loaded("# " + dotted(99) + "\nout = \"" + std::string(50, '.') + "\"\nresume = \"\"\"" + std::string(50, '.') +
             "\"\"\"\ntrain.milestones = [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5, "
             "12.5, 13.5, 14.5, 15.5, 16.5, 17.5, 18.5]\n");
  EXPECT_EQ(settings.get_string("out"), std::string(50, '.'));
  EXPECT_EQ(settings.get_string("resume"), std::string(50, '.'));
}

TEST(SettingsFile, LongKeysAndValuesAreShownInPart) {
  const std::string key(100'000, 'k'), shown = "'" + std::string(120, 'k') + "...'";
  EXPECT_EQ(fault_of(key + " = 1"),
            "job.toml:1:100004: setting " + shown + " is unknown, wanted one of the settings: --help lists them");
  EXPECT_LT(fault_of(key + " = 1\n" + key + " = 2").size(), 500U);
  EXPECT_LT(fault_of("[" + key + "]\n[" + key + "]").size(), 500U);
  EXPECT_LT(fault_of("x = " + key).size(), 500U);
  EXPECT_EQ(fault_of("out = \"" + key + "\""), "job.toml:1:7: out is " + shown + ", wanted at most 4096 bytes");
  EXPECT_EQ(fault_of("train.lr = \"" + key + "\""), "job.toml:1:12: train.lr is " + shown + ", wanted a number");
  EXPECT_EQ(fault_of("out = \"\\u001b[2J\""),
            "job.toml:1:7: out is '\\x1b[2J', wanted UTF-8 without control characters");
}

TEST(SettingsFile, DefaultsSurviveTheRoundTrip) {
  const auto text = Settings(job::schema()).to_toml();
  EXPECT_EQ(loaded(text).to_toml(), text);
  EXPECT_NE(text.find("\n[head]\nname = \"cosface\"\nclasses = 0\nparallel = \"sharded\"\n"), text.npos) << text;
  EXPECT_TRUE(text.starts_with("ranks = 1\nthreads = 0\ndevice = \"cpu\"\nparallel = \"ddp\"\nembedding = 128\n"))
      << text;
  EXPECT_NE(text.find("\n[model]\nname = \"resnet_glyph\"\nnorm = \"batch\"\n"), text.npos) << text;
}

TEST(SettingsFile, ValuesSurviveTheRoundTrip) {
  Settings settings(job::schema());
  settings.apply(std::vector<std::string>{
      "out=a \"b\" \\ 汉", "train.lr=0.1", "train.clip=3", "data.train_fonts=a b,c\"d", "train.milestones=1,2.5",
      "train.nesterov=no", "data=images:x", "head=softmax", "train.weight_decay=1e-30", "train.steps=1e12"});
  const auto again = loaded(settings.to_toml());
  for (const auto& setting : job::schema()) {
    EXPECT_EQ(format_value(again.get(setting.key)), format_value(settings.get(setting.key))) << setting.key;
    EXPECT_TRUE(again.get(setting.key) == settings.get(setting.key)) << setting.key;
  }
}

TEST(SettingsFile, WordsComeAfterTheFile) {
  auto settings = loaded("ranks = 3\nseed = 5\n");
  settings.set("ranks", "4");
  EXPECT_EQ(settings.get_int("ranks"), 4);
  EXPECT_EQ(settings.get_int("seed"), 5);
}

}  // namespace
}  // namespace tandem::settings
