#include <c10/core/DeviceType.h>

#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/base/table.h"
#include "tandem/cli/bench/activation.h"
#include "tandem/cli/result.h"
#include "tandem/job/gpu.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

const std::vector<settings::Setting>& activation_settings() {
  static const std::vector<settings::Setting> settings = {
      {"rounds", int64_t{9}, "steps measured beside each peer", {1, 1000}},
      {.key = "quick", .default_value = false, .doc = "two small shapes instead of ResNet-50's"},
      {.key = "device",
       .default_value = std::string("cpu"),
       .doc = "where the operations run; cuda: on a GPU, with 256 images instead of 8",
       .choices = {"cpu", "cuda"}},
  };
  return settings;
}

nlohmann::json json_of(const ActivationCase& one) {
  return {{"name", one.name},
          {"peer", one.peer},
          {"shape", one.shape},
          {"seconds", one.seconds},
          {"peer_seconds", one.peer_seconds},
          {"speedup", one.speedup},
          {"kept_bytes", one.kept_bytes},
          {"peer_kept_bytes", one.peer_kept_bytes},
          {"bytes_ratio", one.bytes_ratio()},
          {"peak_bytes", one.peak_bytes},
          {"peer_peak_bytes", one.peer_peak_bytes}};
}

std::string table_of(const std::vector<ActivationCase>& cases) {
  Table table({"operation", "peer", "shape", "ms", "peer ms", "times as fast", "kept", "peer's", "peak", "peer's"});
  for (const auto& one : cases) {
    std::string shape;
    for (const auto size : one.shape) shape += (shape.empty() ? "" : "x") + std::to_string(size);
    table.add_row({one.name, one.peer, shape, format_number("%.2f", one.seconds * 1e3),
                   format_number("%.2f", one.peer_seconds * 1e3), format_number("%.2f", one.speedup),
                   format_bytes(one.kept_bytes), format_bytes(one.peer_kept_bytes), format_bytes(one.peak_bytes),
                   format_bytes(one.peer_peak_bytes)});
  }
  return table.str();
}

std::string table_of(const std::vector<AbnErrorCase>& errors) {
  Table table({"float32 error", "weight", "form one", "form two", "batch_norm"});
  for (const auto& one : errors) {
    table.add_row({one.name, format_number("%.1e", one.weight), format_number("%.1e", one.form_one),
                   format_number("%.1e", one.form_two), format_number("%.1e", one.batch_norm)});
  }
  return table.str();
}

}  // namespace

settings::Schema activation_schema() { return activation_settings(); }

int run_activation(const Arguments& arguments) {
  settings::Settings settings{settings::Schema(activation_settings())};
  settings.apply({arguments.words.begin() + 1, arguments.words.end()});
  const bool is_on_gpu = settings.get_string("device") == "cuda";
  if (is_on_gpu) job::check_gpu();
  const auto result = bench_activation({.quick = settings.get_bool("quick"),
                                        .rounds = static_cast<int>(settings.get_int("rounds")),
                                        .device = is_on_gpu ? at::kCUDA : at::kCPU});
  auto cases = nlohmann::json::array(), errors = nlohmann::json::array();
  for (const auto& one : result.cases) cases.push_back(json_of(one));
  for (const auto& one : result.errors) {
    errors.push_back({{"name", one.name},
                      {"weight", one.weight},
                      {"form_one", one.form_one},
                      {"form_two", one.form_two},
                      {"batch_norm", one.batch_norm}});
  }
  write_result(arguments, table_of(result.cases) + "\n" + table_of(result.errors),
               {{"cases", cases}, {"errors", errors}});
  return 0;
}

}  // namespace tandem::cli
