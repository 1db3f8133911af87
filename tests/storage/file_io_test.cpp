#include "tandem/storage/file_io.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/storage/disk_limit.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

using test::slurp;
using test::TemporaryFolder;
using test::text_of;

namespace fs = std::filesystem;

std::vector<std::string> names_under(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

TEST(FullDisk, LeavesNothingBehind) {
  const TemporaryFolder folder;
  write_text_file(folder / "result.json", "old");
  {
    const DiskLimit full(10);
    EXPECT_EQ(text_of<IoError>([&] { write_text_file(folder / "result.json", std::string(99, 'x')); }),
              "cannot write '" + (folder / "result.json.tmp").string() +
                  "': File too large: free some space there or choose another folder");
  }
  EXPECT_EQ(slurp(folder / "result.json"), "old");
  EXPECT_EQ(names_under(folder.path()), std::vector<std::string>{"result.json"});
  set_file_hook([](std::string_view operation, const fs::path&) {
    if (operation == "rename") throw IoError("no space");
  });
  EXPECT_THROW(write_text_file(folder / "result.json", "new"), IoError);
  set_file_hook(nullptr);
  EXPECT_EQ(names_under(folder.path()), std::vector<std::string>{"result.json"});
}

TEST(OutputFiles, WithoutFinishThereIsNone) {
  const TemporaryFolder folder;
  {
    OutputFile file(folder / "x");
    EXPECT_TRUE(fs::exists(folder / "x"));
  }
  EXPECT_FALSE(fs::exists(folder / "x"));
  OutputFile file("/dev/null");  // a device is written to, never removed
  file.append(std::as_bytes(std::span("abc")));
  write_text_file("/dev/null", "abc");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace tandem::storage
