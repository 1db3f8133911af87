#include "tandem/base/cores.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace tandem {
namespace {

namespace fs = std::filesystem;

/// One hexadecimal digit for four cores, core 0 first.
std::string affinity_digits() {
  std::vector<unsigned char> mask(128);  // 1024 cores; the kernel says if it knows more
  while (sched_getaffinity(0, mask.size(), reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    if (errno != EINVAL || mask.size() > 65536) return "1";
    mask.resize(2 * mask.size());
  }
  std::string digits;
  for (const unsigned char byte : mask) {
    for (const int half : {byte & 15, byte >> 4}) digits += "0123456789abcdef"[half];
  }
  digits.erase(digits.find_last_not_of('0') + 1);
  return digits.empty() ? "1" : digits;
}

bool has_core(std::string_view digits, size_t core) {
  if (core / 4 >= digits.size()) return false;
  const char digit = digits[core / 4];
  const int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
  return (value >> core % 4 & 1) != 0;
}

int count_of_cores(std::string_view digits) {
  int count = 0;
  for (size_t core = 0; core < 4 * digits.size(); ++core) count += has_core(digits, core) ? 1 : 0;
  return count;
}

/// A mounted hierarchy of control groups in which a process's group is `path`.
struct Hierarchy {
  fs::path folder;   // of the mount
  std::string root;  // the group that is mounted there
  std::string path;
  bool is_v2 = false;
};

bool lists_cpu(const std::string& list) { return ("," + list + ",").find(",cpu,") != std::string::npos; }

/// The process's group in the hierarchy of version 2, or in that of version 1's CPU controller.
std::optional<std::string> group_of_process(const fs::path& root, bool is_v2) {
  std::ifstream file(root / "proc/self/cgroup");  // number:controllers:path
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    if (is_v2 ? controllers.empty() : lists_cpu(controllers)) return line.substr(second + 1);
  }
  return std::nullopt;
}

std::vector<Hierarchy> hierarchies(const fs::path& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto dash = line.find(" - ");
    if (dash == line.npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string skipped, group, folder, kind, options;
    before >> skipped >> skipped >> skipped >> group >> folder;
    after >> kind >> skipped >> options;
    const bool is_v2 = kind == "cgroup2";
    if (!is_v2 && !(kind == "cgroup" && lists_cpu(options))) continue;
    if (const auto path = group_of_process(root, is_v2)) {
      found.push_back({root / fs::path(folder).relative_path(), group, *path, is_v2});
    }
  }
  return found;
}

/// "max" or -1: none.
std::optional<double> quota_in(const fs::path& folder, bool is_v2) {
  double quota = 0, period = 0;
  if (is_v2) {
    std::ifstream file(folder / "cpu.max");
    file >> quota >> period;
  } else {
    std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
    std::ifstream(folder / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

/// Tells groups of one machine apart, whatever names they have in a container.
std::string identity_of(const fs::path& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return folder.string();
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

void take_smaller(std::optional<CpuQuota>& least, const fs::path& folder, bool is_v2) {
  const auto cores = quota_in(folder, is_v2);
  if (cores && (!least || *cores < least->cores)) least = CpuQuota{*cores, identity_of(folder)};
}

int whole(double cores) { return std::max(1, static_cast<int>(std::ceil(cores - 1e-9))); }

std::string machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  return file >> name ? name : "?";
}

struct Described {
  std::string machine, cores, quota_group;
  int quota = 0;
};

Described read(const std::string& text) {
  Described told;
  std::istringstream(text) >> told.machine >> told.cores >> told.quota >> told.quota_group;
  return told;
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const fs::path& root) {
  std::optional<CpuQuota> least;
  for (const auto& [folder, mounted, path, is_v2] : hierarchies(root)) {
    const bool is_below = mounted == "/" || path == mounted || path.starts_with(mounted + "/");
    fs::path below = is_below ? fs::path(mounted == "/" ? path : path.substr(mounted.size())).relative_path() : "";
    for (; !below.empty(); below = below.parent_path()) take_smaller(least, folder / below, is_v2);
    take_smaller(least, folder, is_v2);
  }
  return least;
}

int usable_cores() {
  static const int cores = [] {
    const int own = count_of_cores(affinity_digits());
    const auto quota = cpu_quota();
    return quota ? std::min(own, whole(quota->cores)) : own;
  }();
  return cores;
}

std::optional<int> omp_num_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return std::nullopt;
  const std::string_view list = text;
  const auto begin = std::min(list.find_first_not_of(" \t"), list.size());
  int count = 0;
  const auto [end, fault] = std::from_chars(list.data() + begin, list.data() + list.size(), count);
  const bool is_number = fault == std::errc() && (end == list.data() + list.size() || *end == ',' || *end == ' ');
  constexpr int kMost = 1024;
  return is_number && count > 0 ? std::optional(std::min(count, kMost)) : std::nullopt;
}

int default_threads(int ranks) {
  if (const auto given = omp_num_threads()) return *given;
  return std::max(1, usable_cores() / ranks);
}

std::string describe_cores() {
  const auto quota = cpu_quota();
  return machine() + " " + affinity_digits() +
         (quota ? " " + std::to_string(whole(quota->cores)) + " " + quota->group : "");
}

int share_of_cores(const std::string& own, const std::vector<std::string>& all) {
  const auto mine = read(own);
  std::vector<Described> here;
  for (const auto& text : all) {
    if (auto told = read(text); told.machine == mine.machine) here.push_back(std::move(told));
  }
  const auto users_of = [&](size_t core) {
    return std::ranges::count_if(here, [&](const Described& one) { return has_core(one.cores, core); });
  };
  double cores = 0;
  for (size_t core = 0; core < 4 * mine.cores.size(); ++core) {
    if (has_core(mine.cores, core)) cores += 1.0 / static_cast<double>(std::max<int64_t>(1, users_of(core)));
  }
  int share = static_cast<int>(cores + 1e-6);
  if (mine.quota > 0) {
    const auto users =
        std::ranges::count_if(here, [&](const Described& one) { return one.quota_group == mine.quota_group; });
    share = std::min(share, mine.quota / static_cast<int>(std::max<int64_t>(1, users)));
  }
  return std::max(1, share);
}

}  // namespace tandem
