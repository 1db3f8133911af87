#include "tandem/data/glyph/glyph_sheet.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "tandem/base/cores.h"
#include "tandem/base/env.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

/// A key for everything that the pixels depend on: the font's files (by place, length and time of change), size, tier,
/// renderer.
uint64_t key_of(const Font& font, Tier tier, int64_t size) {
  std::ostringstream identity;
  identity << kRendererVersion << '|' << freetype_version() << '|' << name_of(tier) << '|' << size;
  for (const auto& face : font.faces) {
    struct stat status {};
    if (::stat(face.file.c_str(), &status) != 0) continue;  // drawing will report the error
    std::error_code ignored;
    identity << '|' << fs::weakly_canonical(face.file, ignored).string() << '#' << face.index << ',' << status.st_size
             << ',' << status.st_mtim.tv_sec << '.' << status.st_mtim.tv_nsec;
  }
  const std::string text = identity.str();
  return XXH3_64bits(text.data(), text.size());
}

fs::path file_name(const Font& font, Tier tier, int64_t size, uint64_t key) {
  char tail[24];
  std::snprintf(tail, sizeof tail, "%016llx", static_cast<unsigned long long>(key));
  return "glyphs-" + font.name + "-" + name_of(tier) + "-" + std::to_string(size) + "-" + tail + ".sheet";
}

/// Held while one process draws into the folder. The system releases it when the process ends, in any way. Where locks
/// do not work, several processes draw the same sheets, which is only slower.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : fd_(::open((folder / "glyphs.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

/// Logs one warning per folder. Called under load_sheet's mutex.
void warn_once(const fs::path& folder, const std::string& why) {
  static std::set<fs::path> warned;
  if (!warned.insert(folder).second) return;
  log::warn("drawn glyphs are not kept: " + why + ": set TANDEM_CACHE to a folder that can be written");
}

std::shared_ptr<const GlyphSheet> read_cached(const fs::path& file, uint64_t key, int64_t size) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return nullptr;
  storage::MappedFile mapped;
  try {
    mapped = storage::MappedFile(file);
  } catch (const IoError&) {
    return nullptr;
  }
  const auto parsed = parse_sheet(mapped.bytes(), key, size);
  if (const auto* view = std::get_if<SheetView>(&parsed)) return std::make_shared<GlyphSheet>(std::move(mapped), *view);
  log::warn("glyph cache '" + file.string() + "' is damaged (" + std::get<std::string>(parsed) + "): drawing it again");
  return nullptr;
}

GlyphImages draw(const Font& font, Tier tier, int64_t size) {
  return render_glyphs(font, characters(tier), size, usable_cores());
}

std::shared_ptr<const GlyphSheet> read_or_draw(const Font& font, Tier tier, int64_t size, uint64_t key,
                                               const std::optional<fs::path>& folder) {
  if (!folder) {
    warn_once({}, "neither TANDEM_CACHE nor HOME is set");
    return std::make_shared<GlyphSheet>(draw(font, tier, size));
  }
  const fs::path file = *folder / file_name(font, tier, size, key);
  if (auto sheet = read_cached(file, key, size)) return sheet;
  std::error_code fault;
  fs::create_directories(*folder, fault);
  const FolderLock lock(*folder);
  if (auto sheet = read_cached(file, key, size)) return sheet;  // drawn by another process while we waited
  auto images = draw(font, tier, size);
  try {
    write_sheet(file, images, key, size);
  } catch (const IoError& error) {
    warn_once(*folder, error.what());
    return std::make_shared<GlyphSheet>(std::move(images));
  }
  if (auto sheet = read_cached(file, key, size)) return sheet;  // pages of the file can be dropped, ours cannot
  return std::make_shared<GlyphSheet>(std::move(images));
}

}  // namespace

GlyphSheet::GlyphSheet(GlyphImages images)
    : images_(std::move(images)), view_{images_.characters, images_.pixels.data()} {}

GlyphSheet::GlyphSheet(storage::MappedFile file, SheetView view) : file_(std::move(file)), view_(view) {}

std::optional<fs::path> default_cache_folder() {
  if (const auto folder = env::get("TANDEM_CACHE")) return fs::path(*folder);
  if (const auto folder = env::get("XDG_CACHE_HOME")) return fs::path(*folder) / "tandem";
  if (const auto home = env::get("HOME")) return fs::path(*home) / ".cache/tandem";
  return std::nullopt;
}

std::shared_ptr<const GlyphSheet> load_sheet(const Font& font, Tier tier, int64_t size,
                                             const std::optional<fs::path>& cache_folder) {
  static std::mutex mutex;  // held while drawing: the other threads want the same sheets
  static std::map<uint64_t, std::weak_ptr<const GlyphSheet>> sheets;
  const uint64_t key = key_of(font, tier, size);
  const std::lock_guard lock(mutex);
  if (auto sheet = sheets[key].lock()) return sheet;
  auto sheet = read_or_draw(font, tier, size, key, cache_folder);
  sheets[key] = sheet;
  return sheet;
}

}  // namespace tandem::data
