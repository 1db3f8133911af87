#include <ATen/Context.h>
#include <ATen/Version.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/base/cores.h"
#include "tandem/base/cpu.h"
#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/table.h"
#include "tandem/cli/command.h"
#include "tandem/cli/program.h"
#include "tandem/cli/result.h"
#include "tandem/job/model_facts.h"
#include "tandem/memory/meter.h"
#include "tandem/models/model.h"

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
          {"cores", usable_cores()},
          {"threads", default_threads(1)},
          {"cpu_capability", at::get_cpu_capability()},
          {"kernels", cpu::name(cpu::chosen())},
          {"memory", {{"total_bytes", meminfo("MemTotal")}, {"available_bytes", meminfo("MemAvailable")}}},
          {"cuda", at::hasCUDA()}};
}

std::string table(const nlohmann::json& info) {
  std::ostringstream text;
  const auto& memory = info["memory"];
  text << "tandem    " << info["version"].get<std::string>() << "\n"
       << "torch     " << info["torch"].get<std::string>() << "\n"
       << "compiler  " << info["compiler"].get<std::string>() << "\n"
       << "cores     " << info["cores"] << "; ATen's kernels for " << info["cpu_capability"].get<std::string>()
       << ", Tandem's for " << info["kernels"].get<std::string>() << "\n"
       << "threads   " << info["threads"] << " a process\n"
       << "memory    " << format_bytes(memory["total_bytes"]) << ", " << format_bytes(memory["available_bytes"])
       << " available\n"
       << "cuda      " << (info["cuda"].get<bool>() ? "yes" : "not built") << "\n";
  return text.str();
}

/// A network of cells is told of as it was published, unless the words say what it is trained on.
settings::Settings with_images(settings::Settings settings) {
  if (!models::has_cells(settings.get_string("model")) || settings.given("data")) return settings;
  settings.set("data", "synthetic");
  if (!settings.given("head.classes")) settings.set("head.classes", "10");
  if (!settings.given("train.batch")) settings.set("train.batch", "2");
  return settings;
}

/// Of all classifiers; 0 while the number of classes is not known.
int64_t head_parameters(const job::Job& job, const job::ModelFacts& facts) {
  const int64_t auxiliary = facts.auxiliary_dim > 0 ? facts.auxiliary_dim + 1 : 0;  // a bias
  return job.head.classes * (job.head.options.columns() + auxiliary);
}

nlohmann::json model_json(const job::Job& job, const job::ModelFacts& facts) {
  auto blocks = nlohmann::json::array();
  for (const auto& block : facts.blocks) {
    blocks.push_back({{"name", block.name},
                      {"parameters", block.parameters},
                      {"buffers", block.buffers},
                      {"output_bytes", block.output},
                      {"saved_bytes", block.saved},
                      {"forward_extra_bytes", block.forward_extra},
                      {"backward_extra_bytes", block.backward_extra},
                      {"forward_seconds", block.forward},
                      {"backward_seconds", block.backward}});
  }
  return {{"model", job.model.name},
          {"batch", job.training.batch},
          {"parameters", facts.parameters + head_parameters(job, facts)},
          {"head_parameters", head_parameters(job, facts)},
          {"buffers", facts.buffers},
          {"blocks", blocks}};
}

std::string model_table(const job::Job& job, const job::ModelFacts& facts) {
  Table table({"block", "parameters", "buffers", "output", "saved", "more in forward", "in backward"});
  memory::Cost all{
      .name = "all", .parameters = facts.parameters + head_parameters(job, facts), .buffers = facts.buffers};
  for (const auto& block : facts.blocks) {
    table.add_row({block.name, format_count(block.parameters), format_count(block.buffers), format_bytes(block.output),
                   format_bytes(block.saved), format_bytes(block.forward_extra), format_bytes(block.backward_extra)});
    all.output += block.output;
    all.saved += block.saved;
  }
  if (job.head.classes > 0) {
    table.add_row({"classifier of " + format_count(job.head.classes), format_count(head_parameters(job, facts)), "0",
                   "", "", "", ""});
  }
  table.add_row({all.name, format_count(all.parameters), format_count(all.buffers), format_bytes(all.output),
                 format_bytes(all.saved), "", ""});
  return "model    " + job.model.name + ", bytes of one forward and backward of " + format_count(job.training.batch) +
         " images\n" + table.str();
}

}  // namespace

int run_info(const Arguments& arguments) {
  memory::install_meter();
  auto info = collect();
  auto text = table(info);
  if (!arguments.words.empty() || arguments.flag("--config")) {
    const auto job = job::read_job(with_images(read_settings(arguments)));
    const auto facts = model_facts(job);
    info.update(model_json(job, facts));
    text = model_table(job, facts);
  }
  write_result(arguments, text, info);
  return 0;
}

}  // namespace tandem::cli
