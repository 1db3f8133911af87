#include "tandem/cli/bench/peer.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/settings/settings.h"

namespace tandem::cli {
namespace {

constexpr auto kRemedy = "peers need bench/ of the source tree, and a Python with torch, which TANDEM_PYTHON names";

/// Nullopt if the line holds anything else.
std::optional<std::vector<double>> numbers_of(const std::string& line, size_t count) {
  std::istringstream words(line);
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  if (!words.eof() || numbers.size() != count) return std::nullopt;
  return numbers;
}

}  // namespace

Peer::Peer(std::string name, const std::optional<std::vector<std::string>>& command) : name_(std::move(name)) {
  try {
    if (command) {
      start(*command);
    } else {
      miss("its script is gone from the sources");
    }
  } catch (const Error& error) {
    miss(message_of(error));
  }
}

void Peer::start(const std::vector<std::string>& command) {
  process_ = std::make_unique<PeerProcess>(command);
  const auto line = process_->read_line();
  if (!line) {
    miss("it ended before it was ready");
  } else if (*line != "ready") {
    miss("it says " + quote(*line) + ", wanted 'ready'");
  }
}

std::optional<std::vector<double>> Peer::ask(const std::string& line, size_t count) {
  if (is_missing()) return std::nullopt;
  const auto answer = answer_to(line);
  const auto numbers = answer ? numbers_of(*answer, count) : std::nullopt;
  if (!answer) {
    miss("it ended instead of answering " + quote(line));
  } else if (!numbers) {
    miss("it answers " + quote(*answer) + " to " + quote(line) + ", wanted " + std::to_string(count) +
         (count == 1 ? " number" : " numbers"));
  }
  return numbers;
}

std::optional<std::string> Peer::answer_to(const std::string& line) {
  try {
    process_->write_line(line);
    return process_->read_line();
  } catch (const IoError&) {
    return std::nullopt;  // it had ended before the line was written
  }
}

void Peer::miss(const std::string& why) {
  process_.reset();
  log::warn("peer " + name_ + " is missing: " + why);
}

void check_names(const settings::Settings& settings, const std::string& key, const std::vector<std::string>& known) {
  for (const auto& name : settings.get_list(key)) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw SettingsError(key + " names '" + name + "', wanted " + one_of(known));
  }
}

void check_peers(const std::vector<std::string>& missing, bool asked_by_name) {
  if (missing.empty() || !asked_by_name) return;
  std::string names;
  for (const auto& name : std::set<std::string>(missing.begin(), missing.end())) {
    names += (names.empty() ? "" : ", ") + name;
  }
  throw IoError("peers names " + names + ", wanted peers that start and stay until the end", kRemedy);
}

}  // namespace tandem::cli
