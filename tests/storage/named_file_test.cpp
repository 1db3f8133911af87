#include "tandem/storage/named_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tandem/base/error.h"
#include "tests/storage/disk_limit.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

namespace fs = std::filesystem;
using test::slurp;
using test::spill;
using test::text_of;

constexpr uint64_t kLimit = 1000;

class NamedFile : public testing::Test {
 protected:
  NamedFile() { set_pipe_patience(std::chrono::milliseconds(50)); }
  ~NamedFile() override { set_pipe_patience(std::chrono::seconds(5)); }

  fs::path pipe() const {
    EXPECT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    return folder_ / "pipe";
  }
  std::string read_fault(const fs::path& path) const {
    return text_of<IoError>([&] { read_named_file("settings file", path, kLimit); });
  }
  std::string write_fault(const fs::path& path) const {
    return text_of<IoError>([&] { write_named_file("--json file", path, "text"); });
  }
  std::string check_fault(const fs::path& path) const {
    return text_of<IoError>([&] { check_named_file("--json file", path); });
  }

  test::TemporaryFolder folder_;
};

TEST_F(NamedFile, ReadsFilesDevicesAndPipes) {
  spill(folder_ / "file", "ranks = 2\n");
  EXPECT_EQ(read_named_file("file", folder_ / "file", kLimit), "ranks = 2\n");
  EXPECT_EQ(read_named_file("file", "/dev/null", kLimit), "");
  int ends[2];  // as a shell's <(...)
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "abc", 3), 3);
  close(ends[1]);
  EXPECT_EQ(read_named_file("file", "/dev/fd/" + std::to_string(ends[0]), kLimit), "abc");
  close(ends[0]);
  const auto named = pipe();
  std::thread writer([&] {
    const int file = open(named.c_str(), O_WRONLY);
    EXPECT_EQ(write(file, "abc", 3), 3);
    EXPECT_EQ(write(file, "def", 3), 3);
    close(file);
  });
  EXPECT_EQ(read_named_file("file", named, kLimit), "abcdef");
  writer.join();
}

TEST_F(NamedFile, AWriterMayTakeItsTimeOnceItIsThere) {
  const auto named = pipe();
  const int first = open(named.c_str(), O_RDONLY | O_NONBLOCK), file = open(named.c_str(), O_WRONLY);
  set_pipe_patience(std::chrono::milliseconds(0));
  std::thread reader([&] { EXPECT_EQ(read_named_file("file", named, kLimit), "late"); });
  EXPECT_EQ(write(file, "late", 4), 4);
  close(file);
  reader.join();
  close(first);
}

TEST_F(NamedFile, AReaderThatGoesIsOneLine) {
  const auto named = pipe();
  const int reader = open(named.c_str(), O_RDONLY | O_NONBLOCK);
  std::thread leaver([&] {
    char letter = 0;
    while (read(reader, &letter, 1) < 1) std::this_thread::yield();
    close(reader);
  });
  const std::string text(200'000, 'x');  // more than a pipe holds
  EXPECT_EQ(text_of<IoError>([&] { write_named_file("--json file", named, text); }),
            "--json file '" + named.string() + "' cannot be written: Broken pipe");
  leaver.join();
}

TEST_F(NamedFile, WhatCannotBeReadIsOneLine) {
  const auto at = [&](const std::string& name) {
    return "settings file '" + (folder_ / name).string() + "' cannot be read: ";
  };
  EXPECT_EQ(read_fault(folder_ / "no"), at("no") + "No such file or directory");
  EXPECT_EQ(read_fault(""), "settings file '' cannot be read: No such file or directory");
  EXPECT_EQ(read_fault(folder_.path()),
            "settings file '" + folder_.path().string() + "' cannot be read: it is a folder");
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_EQ(read_fault(folder_ / "loop"),
            at("loop") + "Too many levels of symbolic links; the links on the path lead to each other");
  EXPECT_TRUE(read_fault(folder_ / std::string(300, 'y')).ends_with("File name too long; choose a shorter name"));
  spill(folder_ / "file", "x");
  EXPECT_EQ(read_fault(folder_ / "file/x"), at("file/x") + "Not a directory; a part of the path is no folder");
  const auto named = pipe();
  EXPECT_EQ(read_fault(named), at("pipe") + "no process writes to this pipe; start its writer first");
  EXPECT_EQ(text_of<DataError>([] { read_named_file("settings file", "/dev/zero", kLimit); }),
            "settings file '/dev/zero' has more than 1000 bytes, wanted less");
}

TEST_F(NamedFile, WritesFilesDevicesAndPipes) {
  fs::create_symlink("target", folder_ / "link");
  check_named_file("file", folder_ / "link");
  write_named_file("file", folder_ / "link", "abc");
  EXPECT_EQ(slurp(folder_ / "target"), "abc");  // also if the target is new
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  write_named_file("file", "/dev/null", "abc");
  const auto longest = std::string(255, 'y');
  check_named_file("file", folder_ / longest);
  write_named_file("file", folder_ / longest, "long");
  EXPECT_EQ(slurp(folder_ / longest), "long");
  const auto named = pipe();
  check_named_file("file", named);
  const std::string text(200'000, 'x');  // more than a pipe holds
  std::string read;
  std::thread reader([&] { read = read_named_file("file", named, text.size()); });
  write_named_file("file", named, text);
  reader.join();
  EXPECT_EQ(read, text);
}

TEST_F(NamedFile, AnOpenFileIsAppendedTo) {
  spill(folder_ / "file", "before\n");
  const int file = open((folder_ / "file").c_str(), O_RDWR);
  write_named_file("file", "/dev/fd/" + std::to_string(file), "after\n");
  close(file);
  EXPECT_EQ(slurp(folder_ / "file"), "before\nafter\n");
}

TEST_F(NamedFile, TheCheckAndTheWriteGiveOneReason) {
  fs::create_symlink("loop", folder_ / "loop");
  spill(folder_ / "file", "x");
  const auto at = [&](const std::string& name) {
    return "--json file '" + (folder_ / name).string() + "' cannot be written: ";
  };
  for (const auto& [name, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "it is a folder"},
           {"loop", "Too many levels of symbolic links; the links on the path lead to each other"},
           {"loop/x", "Too many levels of symbolic links; the links on the path lead to each other"},
           {"file/x", "Not a directory; a part of the path is no folder"}}) {
    EXPECT_EQ(check_fault(folder_ / name), at(name) + why);
    EXPECT_EQ(write_fault(folder_ / name), at(name) + why);
  }
  for (const auto& path : {folder_ / std::string(256, 'y'), folder_ / std::string(300, 'y')}) {
    EXPECT_TRUE(check_fault(path).ends_with("File name too long; choose a shorter name")) << check_fault(path);
    EXPECT_EQ(write_fault(path), check_fault(path));
  }
  EXPECT_EQ(check_fault(folder_ / "no/x"), at("no/x") + "No such file or directory; make its folder first");
  EXPECT_EQ(check_fault("/dev/fd/99"), "--json file '/dev/fd/99' cannot be written: No such file or directory");
  const auto named = pipe();
  EXPECT_EQ(write_fault(named), at("pipe") + "no process reads from this pipe; start its reader first");
  EXPECT_EQ(
      write_fault("/dev/full"),
      "--json file '/dev/full' cannot be written: No space left on device; free some space there or choose another "
      "folder");
}

TEST_F(NamedFile, AFullDiskLeavesTheOlderFile) {
  spill(folder_ / "file", "old");
  const DiskLimit full(10);
  const auto fault = text_of<IoError>([&] { write_named_file("--json file", folder_ / "file", std::string(99, 'x')); });
  EXPECT_TRUE(fault.starts_with("--json file '" + (folder_ / "file").string() + "' cannot be written: ")) << fault;
  EXPECT_EQ(slurp(folder_ / "file"), "old");
}

}  // namespace
}  // namespace tandem::storage
