#include "tandem/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <thread>

#include "tests/support/files.h"

namespace tandem {
namespace {

/// A machine's control groups, as files: what /proc tells of this process, and the quotas of some groups.
double quota_of(const std::string& groups, const std::string& mounts,
                const std::vector<std::pair<std::string, std::string>>& files) {
  const test::TemporaryFolder root;
  test::spill(root / "proc/self/cgroup", groups);
  test::spill(root / "proc/self/mountinfo", mounts);
  for (const auto& [path, text] : files) test::spill(root / path, text);
  const auto quota = cpu_quota(root.path());
  return quota ? quota->cores : 0;
}

constexpr const char* kV2 = "30 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
constexpr const char* kV1 =
    "22 1 0:20 / /proc rw - proc proc rw\n"
    "31 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 25 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

TEST(Cores, QuotaOfVersion2IsTheSmallestOfTheGroupAndItsParents) {
  EXPECT_EQ(quota_of("0::/a/b\n", kV2, {{"sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"}}), 1.5);
  EXPECT_EQ(quota_of("0::/a/b\n", kV2,
                     {{"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "50000 100000\n"}}),
            0.5);
  EXPECT_EQ(quota_of("0::/\n", kV2, {{"sys/fs/cgroup/cpu.max", "400000 100000\n"}}), 4) << "a container's own root";
  EXPECT_EQ(quota_of("0::/a\n", kV2, {{"sys/fs/cgroup/a/cpu.max", "max 100000\n"}}), 0);
  EXPECT_EQ(quota_of("0::/a\n", kV2, {}), 0);
  EXPECT_EQ(quota_of("", "", {}), 0);
}

TEST(Cores, QuotaOfVersion1) {
  const std::vector<std::pair<std::string, std::string>> two = {
      {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}};
  EXPECT_EQ(quota_of("4:cpuset:/other\n3:cpu,cpuacct:/job\n", kV1, two), 2.5);
  EXPECT_EQ(quota_of("4:cpuset:/job\n", kV1, two), 0);
  const std::string of_docker = "31 25 0:28 /docker/7 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
  EXPECT_EQ(
      quota_of("3:cpu:/docker/7\n", of_docker,
               {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000"}}),
      2)
      << "the group is named as on the host, and mounted at its own place";
}

TEST(Cores, AffinityIsWhatCounts) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  std::string described;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &before) && CPU_COUNT(&one) == 0) CPU_SET(core, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    described = describe_cores();
  }).join();
  EXPECT_EQ(share_of_cores(described, {described}), 1);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&before));
}

TEST(Cores, ACoreIsDividedAmongThoseThatMayUseIt) {
  const auto share = [](std::vector<std::string> all) { return share_of_cores(all[0], all); };
  EXPECT_EQ(share({"m ff", "m ff", "m ff", "m ff"}), 2) << "eight cores of four";
  EXPECT_EQ(share({"m 3", "m c", "m 03", "m 0c"}), 2) << "two cores of each";
  EXPECT_EQ(share({"m 3", "m 3", "m c", "m c"}), 1) << "two cores of each two";
  EXPECT_EQ(share({"m ff", "other ff"}), 8) << "two machines";
  EXPECT_EQ(share({"m f1", "m f1"}), 2) << "five cores of two";
  EXPECT_EQ(share({"m 1", "m 1", "m 1"}), 1);
}

TEST(Cores, AQuotaIsDividedAmongThoseOfItsGroup) {
  const auto share = [](std::vector<std::string> all) { return share_of_cores(all[0], all); };
  EXPECT_EQ(share({"m ffff 3 g"}), 3);
  EXPECT_EQ(share({"m ffff 4 g", "m ffff 4 g"}), 2);
  EXPECT_EQ(share({"m ffff 4 g", "m ffff 4 h"}), 4) << "two containers";
  EXPECT_EQ(share({"m ffff 1 g", "m ffff 1 g"}), 1);
}

TEST(Cores, OmpNumThreadsIsHeeded) {
  const auto before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  const auto with = [](const char* text) {
    setenv("OMP_NUM_THREADS", text, 1);
    return omp_num_threads();
  };
  EXPECT_EQ(with("3"), 3);
  EXPECT_EQ(default_threads(2), 3);
  EXPECT_EQ(with(" 4,2"), 4);
  for (const auto* nothing : {"", "0", "-1", "many", "3x"}) EXPECT_EQ(with(nothing), std::nullopt) << nothing;
  EXPECT_EQ(default_threads(1), usable_cores());
  EXPECT_EQ(default_threads(1000), 1);
  if (before) {
    setenv("OMP_NUM_THREADS", kept.c_str(), 1);
  } else {
    unsetenv("OMP_NUM_THREADS");
  }
}

}  // namespace
}  // namespace tandem
