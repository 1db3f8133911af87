#include "tandem/settings/settings.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/job/job.h"
#include "tests/support/text_of.h"

namespace tandem::settings {
namespace {

template <class Fault>
std::string fault_of(const std::vector<std::string>& words) {
  try {
    Settings(job::schema()).apply(words);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "nothing thrown";
}

std::string fault_of(const std::string& word) { return fault_of<SettingsError>({word}); }

Settings applied(const std::vector<std::string>& words) {
  Settings settings(job::schema());
  settings.apply(words);
  return settings;
}

TEST(Settings, DefaultsAreTheSchemas) {
  const Settings settings(job::schema());
  EXPECT_EQ(settings.get_int("ranks"), 1);
  EXPECT_EQ(settings.get_float("train.lr"), 0.3);
  EXPECT_TRUE(settings.get_bool("train.nesterov"));
  EXPECT_EQ(settings.get_string("head"), "cosface");
  EXPECT_TRUE(settings.get_list("data.test_fonts").empty());
  EXPECT_TRUE(settings.get_numbers("train.milestones").empty());
}

TEST(Settings, WordsOverrideAndTheLastWins) {
  const auto settings = applied({"train.lr=0.1", "ranks=4", "train.lr=1e-3"});
  EXPECT_EQ(settings.get_float("train.lr"), 1e-3);
  EXPECT_EQ(settings.get_int("ranks"), 4);
}

TEST(Settings, GivenAndDefaultAreTwoThings) {
  const auto settings = applied({"ranks=1", "seed=7"});
  EXPECT_TRUE(settings.given("ranks"));
  EXPECT_TRUE(settings.is_default("ranks"));
  EXPECT_TRUE(settings.given("seed"));
  EXPECT_FALSE(settings.is_default("seed"));
  EXPECT_FALSE(settings.given("embedding"));
  EXPECT_TRUE(settings.is_default("embedding"));
}

TEST(Settings, NumbersMayBeCompact) {
  EXPECT_EQ(applied({"data.classes=20_902"}).get_string("data.classes"), "20902");
  EXPECT_EQ(applied({"train.steps=1e6"}).get_int("train.steps"), 1'000'000);
  EXPECT_EQ(applied({"train.steps=1_000"}).get_int("train.steps"), 1000);
  EXPECT_EQ(applied({"train.weight_decay=5e-4"}).get_float("train.weight_decay"), 5e-4);
}

TEST(Settings, TextsListsAndTruth) {
  EXPECT_EQ(applied({"data=images:/a=b"}).get_string("data"), "images:/a=b");
  EXPECT_EQ(applied({"data.train_fonts=ukai,uming"}).get_list("data.train_fonts"),
            (std::vector<std::string>{"ukai", "uming"}));
  EXPECT_EQ(applied({"data.train_fonts=ukai", "data.train_fonts="}).get_list("data.train_fonts").size(), 0u);
  EXPECT_EQ(applied({"train.milestones=1,2.5"}).get_numbers("train.milestones"), (std::vector<double>{1, 2.5}));
  for (const auto no : {"false", "no", "off", "0"}) {
    EXPECT_FALSE(applied({std::string("train.nesterov=") + no}).get_bool("train.nesterov"));
  }
  EXPECT_EQ(applied({"out="}).get_string("out"), "");
}

TEST(Settings, OtherSpellings) {
  EXPECT_EQ(applied({"head=am-softmax"}).get_string("head"), "cosface");
  EXPECT_EQ(applied({"head.name=softmax"}).get_string("head"), "softmax");
}

const std::vector<Setting> kRenamed = {
    {.key = "mesh.size", .default_value = int64_t{1}, .doc = "ranks", .former_key = "old.size"},
    {.key = "old.depth", .default_value = int64_t{2}, .doc = "blocks"}};

TEST(Settings, AFormerNameGivesTheSameSetting) {
  Settings words(kRenamed);
  words.apply(std::vector<std::string>{"old.size=3"});
  EXPECT_EQ(words.get_int("mesh.size"), 3);
  EXPECT_TRUE(words.given("mesh.size"));
  Settings file(kRenamed);
  file.load_toml("[old]\nsize = 5\ndepth = 6\n", "settings.toml");
  EXPECT_EQ(file.get_int("mesh.size"), 5);
  EXPECT_EQ(file.to_toml(), "\n[mesh]\nsize = 5\n\n[old]\ndepth = 6\n");
  file.apply(std::vector<std::string>{"mesh.size=7"});
  EXPECT_EQ(file.get_int("mesh.size"), 7) << "words come after the file, whatever its names";
  EXPECT_EQ(describe(kRenamed, 80),
            "mesh.size  1\n    ranks; formerly old.size (a whole number)\n"
            "old.depth  2\n    blocks (a whole number)\n");
  EXPECT_EQ(describe_markdown(Schema(kRenamed).first(1)),
            "| `mesh.size` | 1 | a whole number | ranks; formerly old.size |\n");
}

TEST(Settings, BothNamesOfASettingAreRefused) {
  const std::string fault =
      "old.size is given beside mesh.size, its name by now, wanted one of them: leave old.size out";
  Settings settings(kRenamed);
  EXPECT_EQ(test::text_of<SettingsError>([&] {
              settings.apply(std::vector<std::string>{"old.size=3", "mesh.size=3"});
            }),
            fault);
  EXPECT_EQ(
      test::text_of<SettingsError>([&] { settings.load_toml("[mesh]\nsize = 5\n[old]\nsize = 5\n", "job.toml"); }),
      "job.toml:4:8: " + fault);
}

TEST(Settings, UnknownKeys) {
  const std::string unknown = "is unknown, wanted one of the settings: ";
  EXPECT_EQ(fault_of("trian.lr=1"), "setting 'trian.lr' " + unknown + "did you mean train.lr?");
  EXPECT_EQ(fault_of("lr=1"), "setting 'lr' " + unknown + "did you mean diloco.lr, train.lr or search.lr?");
  EXPECT_EQ(fault_of("train.classes=9"),
            "setting 'train.classes' " + unknown + "did you mean data.classes or head.classes?");
  EXPECT_EQ(fault_of("batch=9"), "setting 'batch' " + unknown + "did you mean train.batch or eval.batch?");
  EXPECT_EQ(fault_of("zzzzzz=9"), "setting 'zzzzzz' " + unknown + "--help lists them");
  EXPECT_EQ(fault_of("seed.name=9"), "setting 'seed.name' " + unknown + "--help lists them");
}

TEST(Settings, FewAreListedWhereOneIsUnknown) {
  const std::vector<Setting> few = {{"rounds", int64_t{9}, "rounds", {1, 100}}, {"quick", false, "fewer"}};
  Settings settings{Schema(few)};
  EXPECT_EQ(test::text_of<SettingsError>([&] { settings.set("zzzz", "1"); }),
            "setting 'zzzz' is unknown, wanted one of the settings: rounds or quick");
}

TEST(Settings, WrongNumbers) {
  EXPECT_EQ(fault_of("train.lr=fast"), "train.lr is 'fast', wanted a number");
  EXPECT_EQ(fault_of("train.lr="), "train.lr is '', wanted a number");
  EXPECT_EQ(fault_of("train.lr=nan"), "train.lr is 'nan', wanted a number");
  EXPECT_EQ(fault_of("train.lr=1e999"), "train.lr is '1e999', wanted a number");
  EXPECT_EQ(fault_of("train.lr=1__0"), "train.lr is '1__0', wanted a number");
  EXPECT_EQ(fault_of("ranks=two"), "ranks is 'two', wanted a whole number");
  EXPECT_EQ(fault_of("ranks=1.5"), "ranks is '1.5', wanted a whole number");
  EXPECT_EQ(fault_of("ranks=_1"), "ranks is '_1', wanted a whole number");
  EXPECT_EQ(fault_of("ranks=99999999999999999999"), "ranks is '99999999999999999999', wanted a whole number");
}

TEST(Settings, NumbersOutOfRange) {
  EXPECT_EQ(fault_of("ranks=0"), "ranks is 0, wanted 1..1024");
  EXPECT_EQ(fault_of("train.lr=-1"), "train.lr is -1, wanted 0 or more");
  EXPECT_EQ(fault_of("head.scale=0"), "head.scale is 0, wanted more than 0");
  EXPECT_EQ(fault_of("train.momentum=1.5"), "train.momentum is 1.5, wanted 0 or more, less than 1");
  EXPECT_EQ(fault_of("train.beta1=1"), "train.beta1 is 1, wanted 0 or more, less than 1");
  EXPECT_EQ(fault_of("data.affine=0.4"), "data.affine is 0.4, wanted 0..0.3");
  EXPECT_EQ(fault_of("train.milestones=1,-2"), "train.milestones is -2, wanted 0 or more");
}

TEST(Settings, WrongTexts) {
  EXPECT_EQ(fault_of("head.parallel=shard"),
            "head.parallel is 'shard', wanted sharded, naive or replicated: did you mean sharded?");
  EXPECT_EQ(
      fault_of("data=images:"),
      "data is 'images:', wanted glyphs, synthetic, images:DIR, faces:DIR, market1501:DIR, cifar10:DIR, cifar100:DIR, "
      "mnist:DIR or fashion:DIR");
  EXPECT_EQ(fault_of("data.classes=9"), "data.classes is '9', wanted gb2312, uro, all or a whole number 10..93773");
  EXPECT_EQ(fault_of("train.nesterov=maybe"), "train.nesterov is 'maybe', wanted true or false");
  EXPECT_EQ(fault_of("resume="), "resume is '', wanted none, auto or a folder");
  EXPECT_EQ(fault_of("data.train_fonts=a,,b"),
            "data.train_fonts is a list with an empty part, wanted names with a comma between them");
}

TEST(Settings, TextsThatNoFileCanHold) {
  for (const auto& [bad, shown] :
       std::vector<std::pair<std::string, std::string>>{{"\xff", "\\xff"},
                                                        {"\xc0\x80", "\\xc0\\x80"},
                                                        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                                                        {"\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80"},
                                                        {"a\nb", "a\\x0ab"},
                                                        {"\xe6\xb1", "\\xe6\\xb1"},
                                                        {"\x1b[2J", "\\x1b[2J"},
                                                        {"\xc2\x9b", "\\xc2\\x9b"}}) {
    EXPECT_EQ(fault_of("out=" + bad), "out is '" + shown + "', wanted UTF-8 without control characters");
  }
  EXPECT_EQ(applied({"out=runs/汉字"}).get_string("out"), "runs/汉字");
  EXPECT_EQ(applied({"out=" + std::string(4096, 'x')}).get_string("out").size(), 4096U);
}

TEST(Settings, LongKeysAndValuesAreShownInPart) {
  const std::string text(100'000, 'x'), shown = "'" + std::string(120, 'x') + "...'";
  EXPECT_EQ(fault_of("model=" + text), "model is " + shown + ", wanted at most 4096 bytes");
  EXPECT_EQ(fault_of("out=" + std::string(4097, 'x')), "out is " + shown + ", wanted at most 4096 bytes");
  EXPECT_EQ(fault_of("ranks=" + text), "ranks is " + shown + ", wanted a whole number");
  EXPECT_EQ(fault_of("train.milestones=1," + text), "train.milestones is " + shown + ", wanted a number");
  EXPECT_EQ(fault_of("train.nesterov=" + text), "train.nesterov is " + shown + ", wanted true or false");
  EXPECT_EQ(fault_of(text + "=1"), "setting " + shown + " is unknown, wanted one of the settings: --help lists them");
  EXPECT_EQ(fault_of<UsageError>({text}), "argument " + shown + " is neither a flag nor key=value, wanted key=value");
}

TEST(Settings, WordsThatAreNoSettings) {
  EXPECT_EQ(fault_of<UsageError>({"pictures"}),
            "argument 'pictures' is neither a flag nor key=value, wanted key=value");
  EXPECT_EQ(fault_of<UsageError>({"glyphs"}),
            "argument 'glyphs' is neither a flag nor key=value, wanted key=value: did you mean data=glyphs?");
  EXPECT_EQ(fault_of<UsageError>({"ranks"}),
            "argument 'ranks' is neither a flag nor key=value, wanted key=value: did you mean ranks=...?");
  EXPECT_EQ(fault_of<UsageError>({"=4"}), "argument '=4' is neither a flag nor key=value, wanted key=value");
}

TEST(Settings, SpacesAndColonsBetweenKeyAndValue) {
  const auto remedy = [](const std::vector<std::string>& words) {
    const auto text = fault_of<UsageError>(words);
    const auto at = text.find(", wanted key=value: ");
    return at == text.npos ? text : text.substr(at + 20);
  };
  EXPECT_EQ(remedy({"train.batch", "=", "64"}), "did you mean train.batch=64? (without spaces)");
  EXPECT_EQ(remedy({"train.batch=", "64"}), "did you mean train.batch=64? (without a space)");
  EXPECT_EQ(remedy({"train.batch", "=64"}), "did you mean train.batch=64? (without a space)");
  EXPECT_EQ(remedy({"train.batch", "64"}), "did you mean train.batch=64?");
  EXPECT_EQ(remedy({"train.batch:64"}), "did you mean train.batch=64?");
  EXPECT_EQ(remedy({"train.batch:", "64"}), "did you mean train.batch=64?");
  EXPECT_EQ(remedy({"data", "=", "images:pics"}), "did you mean data=images:pics? (without spaces)");
  EXPECT_EQ(remedy({"images:pics"}), "did you mean data=images:pics?");
  EXPECT_EQ(remedy({"resnet18"}), "did you mean model=resnet18?");
  EXPECT_EQ(
      fault_of("train.batch = 64"),
      "setting 'train.batch ' is unknown, wanted one of the settings: did you mean train.batch=64? (without spaces)");
  EXPECT_EQ(applied({"out=", "ranks=2"}).get_string("out"), "");
}

TEST(Settings, OtherSpellingsOfKeysGetASuggestion) {
  for (const auto& [key, meant] :
       std::vector<std::pair<std::string, std::string>>{{"Train.Batch", "train.batch"},
                                                        {"TRAIN.LR", "train.lr"},
                                                        {"train.batchsize", "train.batch"},
                                                        {"train/lr", "train.lr"},
                                                        {"\xe2\x80\x94ranks", "ranks"},
                                                        {"num_epochs", "train.epochs"},
                                                        {"weight-decay", "train.weight_decay"}}) {
    const auto fault = fault_of(key + "=1");
    EXPECT_TRUE(fault.ends_with("did you mean " + meant + "?")) << fault;
  }
  EXPECT_NE(fault_of("batch_size=64").find("train.batch"), std::string::npos);
  EXPECT_NE(fault_of("learning_rate=1").find("train.lr"), std::string::npos);
}

TEST(Settings, OtherSpellingsOfValuesGetASuggestion) {
  EXPECT_EQ(fault_of("train.batch='64'"),
            "train.batch is ''64'', wanted a whole number: did you mean train.batch=64? (without quotes)");
  EXPECT_EQ(fault_of("train.lr= 0.1"),
            "train.lr is ' 0.1', wanted a number: did you mean train.lr=0.1? (without a space)");
  EXPECT_EQ(fault_of("train.nesterov=TRUE"),
            "train.nesterov is 'TRUE', wanted true or false: did you mean train.nesterov=true?");
  EXPECT_EQ(fault_of("device=CPU"), "device is 'CPU', wanted cpu or cuda: did you mean device=cpu?");
  EXPECT_EQ(fault_of("train.lr=0,1"), "train.lr is '0,1', wanted a number: did you mean train.lr=0.1? (with a point)");
  EXPECT_EQ(fault_of("train.milestones=[1,2]"),
            "train.milestones is '[1', wanted a number: did you mean train.milestones=1,2? (without brackets)");
}

TEST(Settings, WrongUseInTheProgramIsAnInternalError) {
  const Settings settings(job::schema());
  EXPECT_THROW(settings.get_int("no.such"), c10::Error);
  EXPECT_THROW(settings.get_int("train.lr"), c10::Error);
}

}  // namespace
}  // namespace tandem::settings
