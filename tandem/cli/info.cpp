#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/quote.h"
#include "tandem/cli/program.h"
#include "tandem/cli/result.h"

namespace tandem::cli {
namespace {

/// Bytes of a line of /proc/meminfo ("MemTotal"); 0 when there is none.
int64_t meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

std::string compiler() {
#ifdef __clang__
  return "clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__);
#else
  return "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__);
#endif
}

nlohmann::json collect() {
  return {{"version", version()},
          {"torch", torch_version()},
          {"compiler", compiler()},
          {"cores", std::thread::hardware_concurrency()},
          {"threads", at::get_num_threads()},
          {"cpu_capability", at::get_cpu_capability()},
          {"memory", {{"total_bytes", meminfo("MemTotal")}, {"available_bytes", meminfo("MemAvailable")}}},
          {"cuda", at::hasCUDA()}};
}

std::string table(const nlohmann::json& info) {
  std::ostringstream text;
  const auto& memory = info["memory"];
  text << "tandem    " << info["version"].get<std::string>() << "\n"
       << "torch     " << info["torch"].get<std::string>() << "\n"
       << "compiler  " << info["compiler"].get<std::string>() << "\n"
       << "cores     " << info["cores"] << ", " << info["cpu_capability"].get<std::string>() << "\n"
       << "threads   " << info["threads"] << " a process\n"
       << "memory    " << format_bytes(memory["total_bytes"]) << ", " << format_bytes(memory["available_bytes"])
       << " available\n"
       << "cuda      " << (info["cuda"].get<bool>() ? "yes" : "not built") << "\n";
  return text.str();
}

}  // namespace

int run_info(const Arguments& arguments) {
  if (!arguments.words.empty())
    throw UsageError("info has the argument " + quote(arguments.words[0]) + ", wanted none");
  const auto info = collect();
  write_result(arguments, table(info), info);
  return 0;
}

}  // namespace tandem::cli
