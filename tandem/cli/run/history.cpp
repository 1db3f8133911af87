#include "tandem/cli/run/history.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace tandem::cli {
namespace {

struct Record {
  std::string line, event;
  int64_t step = 0;
  double loss = 0, rate = 0, top1 = 0;
};

/// JSON has no NaN: null stands for it.
double number_of(const nlohmann::json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? at->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<Record> read_record(std::string line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("event") || !json["event"].is_string()) return std::nullopt;
  if (!json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  return Record{std::move(line),         json["event"],         json["step"],
                number_of(json, "loss"), number_of(json, "lr"), number_of(json, "top1")};
}

void drop_after(std::vector<Record>& records, int64_t step) {
  while (!records.empty() && records.back().step > step) records.pop_back();
}

/// The records of one continuous training: records that a resume has made void are left out.
std::vector<Record> read_records(const std::filesystem::path& log) {
  std::ifstream lines(log);
  std::vector<Record> records;
  for (std::string line; std::getline(lines, line);) {
    auto record = read_record(std::move(line));
    if (!record) continue;
    // If the step is there already, the run was resumed, even if the log has no record of that.
    drop_after(records, record->event == "step" ? record->step - 1 : record->step);
    records.push_back(std::move(*record));
  }
  return records;
}

}  // namespace

RunHistory read_history(const std::filesystem::path& log, int64_t last) {
  auto records = read_records(log);
  drop_after(records, last);
  RunHistory history;
  for (auto& record : records) {
    const auto step = static_cast<double>(record.step);
    if (record.event == "step") {
      history.curves.losses.emplace_back(step, record.loss);
      history.curves.rates.emplace_back(step, record.rate);
    } else if (record.event == "test") {
      history.curves.top1.emplace_back(step, record.top1);
    }
    history.lines.push_back(std::move(record.line));
  }
  return history;
}

}  // namespace tandem::cli
