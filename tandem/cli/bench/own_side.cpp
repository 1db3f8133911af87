#include "tandem/cli/bench/own_side.h"

#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/median.h"

namespace tandem::cli {
namespace {

const std::string kThisProgram = "/proc/self/exe";

std::vector<std::string> joined_words(std::vector<std::string> first, const std::vector<std::string>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

}  // namespace

std::vector<std::string> launched(int ranks, const std::vector<std::string>& command) {
  return joined_words({kThisProgram, "launch", "-n", std::to_string(ranks), "--"}, command);
}

std::vector<std::string> step_command(const std::vector<std::string>& settings) {
  return joined_words({kThisProgram, "bench", "step", "data=synthetic", "comm.timeout=3600"}, settings);
}

OwnSide::OwnSide(std::string what, const std::vector<std::string>& command)
    : what_(std::move(what)), process_(command) {
  const auto line = process_.read_line();
  if (!line) throw IoError(what_ + " did not start: " + command.back());
  facts_ = object_of(*line);
}

nlohmann::json OwnSide::object_of(const std::string& line) const {
  auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw IoError(what_ + " says '" + line + "', wanted a JSON object");
  return object;
}

nlohmann::json OwnSide::costs() {
  process_.write_line("costs");
  const auto line = process_.read_line();
  if (!line) throw IoError(what_ + " has ended");
  return object_of(*line);
}

void OwnSide::take(int64_t steps) {
  process_.write_line(std::to_string(steps));
  const auto line = process_.read_line();
  if (!line) throw IoError(what_ + " has ended");
  std::istringstream text(*line);
  std::vector<double> seconds;
  for (double one = 0; text >> one;) seconds.push_back(one);
  rounds_.push_back(median(seconds));
}

}  // namespace tandem::cli
