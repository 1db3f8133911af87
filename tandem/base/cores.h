#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// The cores that this process may use at a time, 1 or more: those of its affinity (taskset, cpusets, SLURM), at most
/// the CPU quota of its control groups, rounded up (docker --cpus, Kubernetes).
int usable_cores();

/// Compute threads of each of `ranks` ranks that share the cores of this process: OMP_NUM_THREADS if it is set, as in
/// Python's torch; else usable_cores() / ranks, at least 1.
int default_threads(int ranks);

/// OMP_NUM_THREADS, of a list its first number, at most 1024; nullopt if it is not set or is no number above 0.
std::optional<int> omp_num_threads();

/// What this process may use, as a text that processes tell each other: machine, cores, quota.
std::string describe_cores();

/// The whole cores that are left to the process that told `own` if each core, and each quota, is divided among all of
/// the processes that may use it; at least 1. `all`: what each process told, this one's text among them.
///
///   four processes, each on cores 0-7      2        a launcher has bound nothing
///   four processes on 0-1, 2-3, 4-5, 6-7   2        each has its own
int share_of_cores(const std::string& own, const std::vector<std::string>& all);

/// The smallest CPU quota of this process's control groups (version 2 or 1) and their parents.
struct CpuQuota {
  double cores = 0;
  std::string group;  // the same for processes that share it
};

/// nullopt: there is none. `root`: below which proc and the mounted control groups are read.
std::optional<CpuQuota> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace tandem
