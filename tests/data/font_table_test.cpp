#include "tandem/data/glyph/font_table.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::TemporaryFolder;
using test::text_of;

TEST(FontTable, UnknownNameGetsTheNearestAndTheList) {
  const TemporaryFolder folder;
  const FontCatalog catalog({folder.path()});
  EXPECT_EQ(text_of<SettingsError>([&] { catalog.resolve("zenhai", "train_fonts[1]"); }),
            "train_fonts[1] is 'zenhai', wanted one of noto-sans, noto-serif, zenhei, microhei, ukai, uming, gkai, "
            "bkai, gbsn, bsmi, babelstone, droid, ipa-gothic, ipa-mincho, cwtex-kai, hanazono, noto-sans-bold, "
            "noto-serif-bold, cwtex-ming, cwtex-yen, cwtex-hei, or a path to a font file: did you mean zenhei?");
}

TEST(FontTable, KnownButNotInstalledNamesThePackage) {
  const TemporaryFolder folder;
  const FontCatalog catalog({folder.path()});
  EXPECT_EQ(text_of<DataError>([&] { catalog.resolve("gkai", "test_fonts[0]"); }),
            "test_fonts[0] is gkai, which is not installed: "
            "apt-get install --no-install-recommends fonts-arphic-gkai00mp");
}

TEST(FontTable, FilesAreFoundWhereverTheyLieInTheFolders) {
  const TemporaryFolder folder;
  test::spill(folder / "deep/er/ukai.ttc", "x");
  test::spill(folder / "NotoSansCJK-Regular.ttc", "x");
  test::spill(folder / "HanaMinA.ttf", "x");  // hanazono needs HanaMinB too
  const FontCatalog catalog({folder / "none", folder.path()});
  EXPECT_EQ(catalog.installed_standard(), (std::vector<std::string>{"noto-sans", "ukai"}));
  EXPECT_EQ(catalog.resolve("ukai", "").faces, (std::vector<FontFace>{{folder / "deep/er/ukai.ttc", 0}}));
  EXPECT_EQ(catalog.resolve("noto-sans", "").faces.front().index, 2);
}

TEST(FontTable, EnvironmentNamesTheFolders) {
  const TemporaryFolder one, two;
  test::spill(one / "ukai.ttc", "x");
  test::spill(two / "uming.ttc", "x");
  setenv("TANDEM_FONTS", (one.path().string() + "::" + two.path().string()).c_str(), 1);
  EXPECT_EQ(FontCatalog({}).installed_standard(), (std::vector<std::string>{"ukai", "uming"}));
  unsetenv("TANDEM_FONTS");
}

TEST(FontTable, PathsNameUserFontsAndFaces) {
  const TemporaryFolder folder;
  test::spill(folder / "my han.ttc", "x");
  const std::string path = (folder / "my han.ttc").string();
  const FontCatalog catalog({folder.path()});
  EXPECT_EQ(catalog.resolve(path, "").name, "my han");
  const auto third = catalog.resolve(path + "#3", "");
  EXPECT_EQ(third.name, "my han#3");
  EXPECT_EQ(third.faces, (std::vector<FontFace>{{path, 3}}));
  EXPECT_EQ(text_of<SettingsError>([&] { catalog.resolve(path + "#x", "train_fonts[0]"); }),
            "train_fonts[0] is '" + path + "#x', wanted a face number after '#', as in fonts/han.ttc#2");
  EXPECT_EQ(text_of<DataError>([&] { catalog.resolve("./no.ttf", "train_fonts[0]"); }),
            "train_fonts[0] is './no.ttf', which is no file: name a font file or a known font");
}

TEST(FontTable, InstallHintNamesEachPackageOnce) {
  const auto hint = install_hint();
  EXPECT_TRUE(hint.starts_with("apt-get install --no-install-recommends fonts-noto-cjk fonts-wqy-zenhei ")) << hint;
  EXPECT_EQ(hint.find("fonts-noto-cjk"), hint.rfind("fonts-noto-cjk"));
  EXPECT_EQ(hint.find("cwtex-ming"), hint.npos);
}

}  // namespace
}  // namespace tandem::data
