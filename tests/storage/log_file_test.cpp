#include "tandem/storage/log_file.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/storage/disk_limit.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

namespace fs = std::filesystem;
using test::slurp;
using test::spill;
using test::TemporaryFolder;
using test::text_of;

TEST(LogFile, ARemovedFolderComesBackWithAllRecords) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "runs/a");
  LogFile file(folder / "runs/a/log", LogFile::Start::anew, "gaps");
  file.append("1\n");
  EXPECT_TRUE(file.is_in_place());
  fs::remove_all(folder / "runs");
  EXPECT_FALSE(file.is_in_place());
  file.append("2\n");
  file.put_back();
  EXPECT_TRUE(file.is_in_place());
  file.append("3\n");
  EXPECT_EQ(slurp(folder / "runs/a/log"), "1\n2\n3\n");
}

TEST(LogFile, AFolderThatWasMovedAwayKeepsItsFile) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "a");
  LogFile file(folder / "a/log", LogFile::Start::anew, "gaps");
  file.append("1\n");
  fs::rename(folder / "a", folder / "b");
  EXPECT_FALSE(file.is_in_place());
  file.put_back();
  file.append("2\n");
  EXPECT_EQ(slurp(folder / "a/log"), "1\n2\n");
  EXPECT_EQ(slurp(folder / "b/log"), "1\n");
}

TEST(LogFile, AnotherFileInItsPlaceIsGoneOnWith) {
  const TemporaryFolder folder;
  LogFile file(folder / "log", LogFile::Start::anew, "gaps");
  file.append("1\n");
  spill(folder / "copy", "1, copied\n");
  fs::rename(folder / "copy", folder / "log");
  EXPECT_FALSE(file.is_in_place());
  file.put_back();
  file.append("2\n");
  EXPECT_EQ(slurp(folder / "log"), "1, copied\n2\n");
}

TEST(LogFile, AFileThatCannotComeBackIsNamedAndTheOldOneStaysInUse) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "a");
  LogFile file(folder / "a/log", LogFile::Start::anew, "gaps");
  file.append("12345\n");
  fs::remove_all(folder / "a");
  {
    const DiskLimit full(3);
    EXPECT_EQ(text_of<IoError>([&] { file.put_back(); }),
              "cannot write '" + (folder / "a/log").string() + "': File too large");
  }
  EXPECT_FALSE(fs::exists(folder / "a/log"));
  file.append("6\n");
  file.put_back();
  EXPECT_EQ(slurp(folder / "a/log"), "12345\n6\n");
}

}  // namespace
}  // namespace tandem::storage
