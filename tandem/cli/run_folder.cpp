#include "tandem/cli/run_folder.h"

#include <ctime>
#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

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

[[noreturn]] void fail(const fs::path& folder, const std::error_code& error) {
  throw IoError("run's folder '" + folder.string() + "' cannot be made: " + error.message(), "name another with out=");
}

}  // namespace

fs::path make_run_folder(const std::string& out) {
  std::error_code error;
  if (!out.empty()) {
    fs::create_directories(out, error);
    if (error) fail(out, error);
    return out;
  }
  fs::create_directories("runs", error);
  if (error) fail("runs", error);
  for (int number = 0;; ++number) {
    const fs::path folder = fs::path("runs") / (today() + "-" + letters(number));
    if (fs::create_directory(folder, error)) return folder;
    if (error) fail(folder, error);
  }
}

void write_run_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) log::warn("'" + path.string() + "' could not be written");
}

}  // namespace tandem::cli
