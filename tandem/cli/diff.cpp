#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/cli/command.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/block_file.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

const std::vector<settings::Setting>& diff_settings() {
  static const std::vector<settings::Setting> settings = {
      {"tolerance",
       0.0,
       "stats: relative difference from which on two values differ; 0: 1e-9 in float64, otherwise 1e-4",
       {0, 1}}};
  return settings;
}

struct DiffRequest {
  std::string one, other;
  double tolerance = 0;
};

DiffRequest read_diff_request(const Arguments& arguments) {
  const auto is_path = [&](size_t i) {
    return i < arguments.words.size() && arguments.words[i].find('=') == std::string::npos;
  };
  if (!is_path(0) || !is_path(1)) {
    throw UsageError("diff: a run is missing, wanted 'tandem diff RUN RUN [tolerance=NUMBER]'");
  }
  settings::Settings settings{settings::Schema(diff_settings())};
  settings.apply(std::span(arguments.words).subspan(2));
  return {arguments.words[0], arguments.words[1], settings.get_float("tolerance")};
}

double standard_tolerance(const BlockFile& one, const BlockFile& other) {
  return one.precision == "float64" && other.precision == "float64" ? 1e-9 : 1e-4;
}

nlohmann::json json_of(const train::TraceDifference& first) {
  const auto& where = first.where;
  return {{"step", where.step},
          {"micro_batch",
           where.micro_batch == train::kAllMicroBatches ? nlohmann::json() : nlohmann::json(where.micro_batch)},
          {"block", where.block},
          {"tensor", where.tensor},
          {"difference", first.by && *first.by > 0 ? nlohmann::json(*first.by) : nlohmann::json()}};
}

}  // namespace

std::string text_of(const train::TraceDifference& first) {
  const auto& where = first.where;
  auto text = "step " + std::to_string(where.step);
  if (where.micro_batch > 0) text += ", micro-batch " + std::to_string(where.micro_batch);
  text += ": " + where.tensor + " of block " + where.block;
  if (!first.by) return text + " is not in both, or not of one size";
  if (*first.by == 0) return text + " differs in its bits";
  char number[32];
  std::snprintf(number, sizeof number, "%.2g", *first.by);
  return text + " differs by " + number;
}

settings::Schema diff_schema() { return diff_settings(); }

int run_diff(const Arguments& arguments) {
  const auto request = read_diff_request(arguments);
  const auto one = read_block_file(request.one), other = read_block_file(request.other);
  if (one.kind != other.kind) {
    throw DataError("blocks of " + quote(request.one) + " are told by trace.blocks=" + one.kind + " and those of " +
                        quote(request.other) + " by " + other.kind + ", wanted one way",
                    "train one of them again");
  }
  std::optional<double> tolerance;
  if (one.kind != "hash") tolerance = request.tolerance > 0 ? request.tolerance : standard_tolerance(one, other);
  const bool have_same_samples = one.ranks_of_batch == other.ranks_of_batch;
  const auto first = train::first_difference(one.trace, other.trace, have_same_samples, tolerance);
  std::set<int64_t> steps;
  for (const auto& numbers : one.trace) steps.insert(numbers.step);
  const auto text =
      first ? "the runs part at " + text_of(*first) + "\n"
            : "no block differs in " + std::to_string(steps.size()) + (steps.size() == 1 ? " step\n" : " steps\n");
  write_result(arguments, text,
               {{"first", first ? json_of(*first) : nlohmann::json()},
                {"values", one.trace.size()},
                {"tolerance", tolerance ? nlohmann::json(*tolerance) : nlohmann::json()}});
  return first ? 1 : 0;
}

}  // namespace tandem::cli
