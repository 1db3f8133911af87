#include "tandem/cli/run/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <random>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/storage/file_io.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

/// a .. z, aa .. zz, ...
std::string letters(int number) {
  std::string text;
  for (++number; number > 0; number = (number - 1) / 26)
    text.insert(text.begin(), static_cast<char>('a' + (number - 1) % 26));
  return text;
}

/// The files that a run opens in its folder, and the folders that it fills. A run replaces all other files, links too.
constexpr const char* kOpened[] = {".lock", "log.jsonl"};
constexpr const char* kFilled[] = {"checkpoints", "events", "flight"};
constexpr const char* kRuns = "runs";
constexpr size_t kMarkDigits = 16;

/// Also true if both are one folder. A path that cannot be followed lies nowhere.
bool lies_in(const fs::path& inner, const fs::path& outer) {
  std::error_code no_inner, no_outer;
  const auto path = fs::weakly_canonical(fs::absolute(inner), no_inner),
             around = fs::weakly_canonical(fs::absolute(outer), no_outer);
  if (no_inner || no_outer) return false;
  const auto way = path.lexically_relative(around);
  return *way.begin() != "..";
}

void check_folder_within(const fs::path& path) {
  storage::refuse_link(path);
  std::error_code ignored;
  if (!fs::exists(path, ignored) || fs::is_directory(path, ignored)) return;
  throw IoError("'" + path.string() + "' is a file, wanted a folder: the run fills it",
                "remove it, or name another folder with out=");
}

std::string new_mark() {
  std::random_device device;
  char mark[kMarkDigits + 1];
  std::snprintf(mark, sizeof mark, "%08x%08x", device(), device());
  return mark;
}

int open_lock(const fs::path& path) { return open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644); }

/// Returns false if another process holds the lock.
bool try_lock(int file) { return flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

/// The mark is best effort: on a full disk there is none.
void write_mark(int file, const std::string& mark) {
  if (ftruncate(file, 0) == 0 && pwrite(file, mark.data(), mark.size(), 0) < 0) return;
}

std::string read_mark(int file) {
  char mark[kMarkDigits];
  const auto count = pread(file, mark, sizeof mark, 0);
  return {mark, static_cast<size_t>(std::max<ssize_t>(count, 0))};
}

[[noreturn]] void fail(const fs::path& folder, const std::string& why, const std::string& verb = "made") {
  throw IoError("run's folder " + quote(folder.string()) + " cannot be " + verb + ": " + why, "name another with out=");
}

[[noreturn]] void fail(const fs::path& folder, const std::error_code& error) { fail(folder, error.message()); }

[[noreturn]] void fail_for_lock(const fs::path& folder) {
  throw SettingsError(
      "run's folder is '" + folder.string() + "', in which another run is at work, wanted a folder of its own",
      "wait for that run to end, or name another folder");
}

/// The part of the path that is there.
fs::path known_part(const fs::path& folder) {
  auto part = folder;
  std::error_code error;
  for (auto status = fs::symlink_status(part, error); !exists(status); status = fs::symlink_status(part, error)) {
    if (status.type() != fs::file_type::not_found) fail(folder, error);
    if (part.empty()) return ".";
    part = part.parent_path();
  }
  if (fs::is_directory(part, error)) return part;
  fail(folder, fs::is_symlink(part, error) ? quote(part.string()) + " is a link that leads to no folder"
                                           : quote(part.string()) + " is no folder");
}

void check_contents(const fs::path& folder) {
  for (const char* name : kOpened) storage::refuse_link(folder / name);
  for (const char* name : kFilled) check_folder_within(folder / name);
}

/// Several processes of a job may look at the lock at once; none of them may take another for the run that holds it.
void check_lock(const fs::path& folder) {
  const int file = open((folder / ".lock").c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return;
  const bool is_held = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  if (is_held) fail_for_lock(folder);
}

}  // namespace

void check_run_folder(const std::string& out) {
  const fs::path folder = out.empty() ? kRuns : out;
  const auto part = known_part(folder);
  if (access(part.c_str(), W_OK | X_OK) != 0)
    fail(folder, std::generic_category().message(errno), part == folder ? "written" : "made");
  if (out.empty()) return;
  check_contents(folder);
  check_lock(folder);
}

fs::path make_run_folder(const std::string& out) {
  std::error_code error;
  if (!out.empty()) {
    fs::create_directories(out, error);
    if (error) fail(out, error);
    check_contents(out);
    return out;
  }
  fs::create_directories(kRuns, error);
  if (error) fail(kRuns, error);
  for (int number = 0;; ++number) {
    const fs::path folder = fs::path(kRuns) / (today() + "-" + letters(number));
    if (fs::create_directory(folder, error)) return folder;
    if (error) fail(folder, error);
  }
}

void remove_new_folder(const fs::path& folder, bool is_unnamed) noexcept {
  std::error_code ignored;
  for (const char* name : {"settings.toml", ".lock", "log.jsonl", "checkpoints"}) fs::remove(folder / name, ignored);
  if (fs::remove(folder, ignored) && is_unnamed) fs::remove(folder.parent_path(), ignored);
}

void check_apart(const std::string& run, const fs::path& data) {
  const fs::path folder = run.empty() ? kRuns : run;
  const auto refuse = [](const std::string& what) {
    throw SettingsError(what + ", wanted two folders apart", "name another folder for the run with out=");
  };
  const auto named = [](const std::string& whose, const fs::path& path) { return whose + " '" + path.string() + "'"; };
  if (lies_in(folder, data)) refuse(named("run's folder", folder) + " lies in " + named("the data's", data));
  if (!run.empty() && lies_in(data, folder))
    refuse(named("data's folder", data) + " lies in " + named("the run's", run));
}

FolderLock::FolderLock(const fs::path& folder)
    : folder_(folder), mark_(new_mark()), file_(open_lock(folder / ".lock")) {
  if (file_ < 0) {
    storage::refuse_link(folder / ".lock");
    return;
  }
  if (try_lock(file_)) {
    write_mark(file_, mark_);
    return;
  }
  close(file_);
  fail_for_lock(folder);
}

bool FolderLock::is_in_place() const { return file_ < 0 || storage::is_in_place(file_, folder_ / ".lock"); }

void FolderLock::keep() {
  if (is_in_place()) return;
  storage::make_folders(folder_);
  const int file = open_lock(folder_ / ".lock");
  if (file < 0) throw IoError("cannot lock '" + folder_.string() + "': " + std::generic_category().message(errno));
  const bool is_free = try_lock(file);
  const auto mark = read_mark(file);
  if (!is_free || !(mark.empty() || mark == mark_)) {
    close(file);
    throw IoError("'" + folder_.string() + "' was removed and is another run's now");
  }
  write_mark(file, mark_);
  close(std::exchange(file_, file));
}

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

void set_flight_aside(const fs::path& folder) noexcept {
  std::error_code error;
  if (!fs::exists(folder / kFlightFolder, error)) return;
  fs::remove_all(folder / kFlightBefore, error);
  fs::rename(folder / kFlightFolder, folder / kFlightBefore, error);
}

void write_run_file(const fs::path& path, const std::string& text) {
  try {
    storage::write_text_file(path, text);
  } catch (const IoError& error) {
    log::warn(message_of(error));
  }
}

}  // namespace tandem::cli
