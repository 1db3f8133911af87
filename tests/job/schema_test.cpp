#include "tandem/settings/schema.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "tandem/job/job.h"
#include "tandem/settings/settings.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

TEST(Schema, EveryDefaultIsAllowed) {
  for (const auto& setting : schema()) {
    EXPECT_TRUE(settings::read_value(setting, settings::format_value(setting.default_value)) == setting.default_value)
        << setting.key;
  }
}

TEST(Schema, KeysAreUniqueAndNoneIsCalledName) {
  std::set<std::string_view> keys;
  for (const auto& setting : schema()) {
    EXPECT_TRUE(keys.insert(setting.key).second) << setting.key;
    EXPECT_FALSE(setting.key.ends_with(".name")) << "that is how a file spells a key that is a section";
    EXPECT_LE(std::ranges::count(setting.key, '.'), 1) << "to_toml() writes one level of sections";
    EXPECT_FALSE(setting.doc.empty() || setting.doc.ends_with('.')) << setting.key;
  }
}

TEST(Schema, HoldsTheKeysThatOthersRelyOn) {
  for (const auto key :
       {"ranks",        "data",        "data.classes", "data.size",       "data.train_fonts", "data.test_fonts",
        "model",        "embedding",   "head",         "head.parallel",   "head.margin",      "head.scale",
        "train.epochs", "train.steps", "train.batch",  "train.lr",        "train.schedule",   "train.precision",
        "seed",         "out",         "resume",       "checkpoint.every"}) {
    EXPECT_NE(settings::find_setting(schema(), key), nullptr) << key;
  }
}

TEST(Schema, DescriptionsName) {
  const auto text = std::regex_replace(settings::describe(schema(), 1000), std::regex("\n  +"), "  ");
  EXPECT_NE(
      text.find(
          "train.weight_decay  5e-4  weight decay; SGD, Adam: added to the gradient; AdamW: decoupled (0 or more)\n"),
      text.npos)
      << text;
  EXPECT_NE(text.find("data.test_fonts  (empty)  "), text.npos) << text;
}

TEST(Schema, DocsHoldTheTable) {
  const auto path = std::string(std::getenv("TANDEM_SOURCE_DIR")) + "/docs/setting_list.md";
  std::ifstream file(path);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::istringstream rows(settings::describe_markdown(schema()));
  for (std::string row; std::getline(rows, row);) {
    EXPECT_NE(page.find(row + "\n"), page.npos) << path << " lacks this row:\n" << row;
  }
}

}  // namespace
}  // namespace tandem::job
