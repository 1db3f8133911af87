#include "tandem/data/glyph/glyph_sheet.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/data/tiny_font.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::bytes_of;
using test::TemporaryFolder;
using test::text_of;

const GlyphImages kImages = {{0x4E00, 0x20001}, {1, 2, 3, 4, 5, 6, 7, 8}};  // 2 x 2 pixels

TEST(SheetFile, ComesBackAsWritten) {
  const TemporaryFolder folder;
  write_sheet(folder / "a.sheet", kImages, 42, 2);
  const storage::MappedFile file(folder / "a.sheet");
  const auto parsed = parse_sheet(file.bytes(), 42, 2);
  const auto& view = std::get<SheetView>(parsed);
  EXPECT_EQ(std::vector(view.characters.begin(), view.characters.end()), kImages.characters);
  EXPECT_EQ(std::vector(view.pixels, view.pixels + 8), kImages.pixels);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);  // no temporary file stays
}

TEST(SheetFile, EachCutAndEachDamagedByteIsSeen) {
  const TemporaryFolder folder;
  write_sheet(folder / "a.sheet", kImages, 42, 2);
  const auto whole = test::slurp(folder / "a.sheet");
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(std::holds_alternative<std::string>(parse_sheet(bytes_of(whole.substr(0, i)), 42, 2))) << i;
    auto damaged = whole;
    damaged[i] ^= 0x10;
    EXPECT_TRUE(std::holds_alternative<std::string>(parse_sheet(bytes_of(damaged), 42, 2))) << i;
  }
  const auto why = [&](const std::string& bytes, uint64_t key) {
    return std::get<std::string>(parse_sheet(bytes_of(bytes), key, 2));
  };
  EXPECT_EQ(why(whole.substr(0, 31), 42), "it is 31 bytes long");
  EXPECT_EQ(why(whole.substr(0, 47), 42), "it is 47 bytes long, wanted 48");
  EXPECT_EQ(why(whole, 43), "it is of another font");
  EXPECT_EQ(why(std::string(48, 'x'), 42), "it does not begin with TNDMGLYF");
  auto damaged = whole;
  damaged.back() ^= 1;
  EXPECT_EQ(why(damaged, 42), "its checksum is wrong");
}

TEST(SheetFile, AFolderThatIsNoneGivesTheReason) {
  const TemporaryFolder folder;
  test::spill(folder / "file", "x");
  const auto text = text_of<IoError>([&] { write_sheet(folder / "file/a.sheet", kImages, 1, 2); });
  EXPECT_TRUE(text.starts_with("cannot create '" + (folder / "file/a.sheet.").string())) << text;
  EXPECT_TRUE(text.ends_with(".tmp': Not a directory")) << text;
}

class GlyphSheetCache : public testing::Test {
 protected:
  void SetUp() override { test::spill(folder_ / "tiny.ttf", test::tiny_font(test::boxes_from(0x4E00, 50))); }

  std::shared_ptr<const GlyphSheet> load(const std::filesystem::path& cache) {
    return load_sheet({"tiny", {{folder_ / "tiny.ttf", 0}}}, Tier::gb2312, 16, cache);
  }
  std::vector<uint8_t> pixels_of(const GlyphSheet& sheet) {
    return {sheet.pixels(), sheet.pixels() + sheet.characters().size() * 256};
  }
  std::vector<std::filesystem::path> sheets() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(cache_)) {
      if (entry.path().extension() != ".lock") files.push_back(entry.path());
    }
    return files;
  }

  TemporaryFolder folder_;
  std::filesystem::path cache_ = folder_ / "cache/tandem";
};

TEST_F(GlyphSheetCache, SecondTimeReadsTheFile) {
  const auto drawn = pixels_of(*load(cache_));
  ASSERT_EQ(sheets().size(), 1U);
  const auto file = sheets().front();
  const auto inode_time = std::filesystem::last_write_time(file);
  EXPECT_EQ(pixels_of(*load(cache_)), drawn);
  EXPECT_EQ(std::filesystem::last_write_time(file), inode_time);
  EXPECT_FALSE(drawn.empty());
}

TEST_F(GlyphSheetCache, DamagedFilesAreDrawnAgainAndMended) {
  const auto drawn = pixels_of(*load(cache_));
  const auto file = sheets().front();
  const auto whole = test::slurp(file);
  auto flipped = whole;
  flipped[100] ^= 1;
  for (const auto& damaged : {whole.substr(0, whole.size() / 2), flipped, std::string()}) {
    test::spill(file, damaged);
    testing::internal::CaptureStderr();
    EXPECT_EQ(pixels_of(*load(cache_)), drawn);
    const auto said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(said.starts_with("warning: glyph cache '" + file.string() + "' is damaged (it")) << said;
    EXPECT_EQ(test::slurp(file), whole);
  }
}

TEST_F(GlyphSheetCache, AnotherFontFileIsDrawnAnew) {
  const auto before = load(cache_)->characters().size();
  test::spill(folder_ / "tiny.ttf", test::tiny_font(test::boxes_from(0x4E00, 500)));
  EXPECT_GT(load(cache_)->characters().size(), before);
  EXPECT_EQ(sheets().size(), 2U);
}

TEST_F(GlyphSheetCache, WorksWithoutAFolderAndWarnsOnce) {
  test::spill(folder_ / "file", "x");
  testing::internal::CaptureStderr();
  const auto first = pixels_of(*load(folder_ / "file/cache")), second = pixels_of(*load(folder_ / "file/cache"));
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, second);
  EXPECT_TRUE(said.starts_with("warning: drawn glyphs are not kept: cannot create '" +
                               (folder_ / "file/cache/glyphs-tiny-").string()))
      << said;
  EXPECT_TRUE(said.ends_with(".tmp': Not a directory: set TANDEM_CACHE to a folder that can be written\n")) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

TEST_F(GlyphSheetCache, ThreadsShareOneSheet) {
  std::vector<std::shared_ptr<const GlyphSheet>> got(8);
  {
    std::vector<std::jthread> threads;
    for (auto& one : got) threads.emplace_back([&] { one = load(cache_); });
  }
  for (const auto& one : got) EXPECT_EQ(one, got.front());
}

TEST_F(GlyphSheetCache, ProcessesMayRace) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int status = 1;
      try {
        status = load(cache_)->characters().empty() ? 1 : 0;
      } catch (...) {
      }
      _exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(sheets().size(), 1U);
  EXPECT_FALSE(load(cache_)->characters().empty());
}

TEST(GlyphCacheFolder, ComesFromTheEnvironment) {
  const auto saved = getenv("TANDEM_CACHE") ? std::optional<std::string>(getenv("TANDEM_CACHE")) : std::nullopt;
  const std::string home = getenv("HOME") ? getenv("HOME") : "";
  setenv("TANDEM_CACHE", "/a/b", 1);
  setenv("XDG_CACHE_HOME", "/x", 1);
  setenv("HOME", "/h", 1);
  EXPECT_EQ(default_cache_folder(), "/a/b");
  unsetenv("TANDEM_CACHE");
  EXPECT_EQ(default_cache_folder(), "/x/tandem");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(default_cache_folder(), "/h/.cache/tandem");
  unsetenv("HOME");
  EXPECT_EQ(default_cache_folder(), std::nullopt);
  setenv("HOME", home.c_str(), 1);
  if (saved) setenv("TANDEM_CACHE", saved->c_str(), 1);
}

}  // namespace
}  // namespace tandem::data
