#include "tandem/cli/run/block_file.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/storage/file_io.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

std::string text_of(uint64_t hash) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

const char* name_of(job::Traced kind) { return kind == job::Traced::hash ? "hash" : "stats"; }

/// Writes the lines of an earlier part of the run, up to a step, into the run's file. False: there are none.
bool keep_lines(const fs::path& earlier, const fs::path& folder, job::Traced kind, int64_t first_step) {
  const auto path = earlier / kBlocksFile;
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) continue;
    if (const auto its = parsed.value("trace", std::string(name_of(kind))); its != name_of(kind)) {
      std::error_code ignored;
      if (!fs::equivalent(folder, earlier, ignored)) return false;
      throw SettingsError("trace.blocks is " + std::string(name_of(kind)) + ", but " + quote(path.string()) +
                              " was written with " + its + ", wanted " + its,
                          "or set out to another folder");
    }
    if (parsed.value("step", int64_t{0}) <= first_step) kept += line + "\n";
  }
  file.close();
  if (!kept.empty()) storage::write_text_file(folder / kBlocksFile, kept);
  return !kept.empty();
}

train::BlockNumbers numbers_of(const nlohmann::json& line, const std::string& kind) {
  train::BlockNumbers numbers{.step = line.at("step"),
                              .micro_batch = line.at("micro_batch"),
                              .block = line.at("block"),
                              .tensor = line.at("tensor"),
                              .count = line.at("count")};
  if (kind == "hash") {
    numbers.hash = std::stoull(line.at("hash").get<std::string>(), nullptr, 16);
    return numbers;
  }
  const auto number = [&](const char* key) {
    return line.at(key).is_null() ? std::nan("") : line.at(key).get<double>();
  };
  numbers.sum = number("sum");
  numbers.squares = number("squares");
  numbers.largest = number("largest");
  numbers.projection = number("projection");
  return numbers;
}

}  // namespace

BlockFileWriter::BlockFileWriter(const Start& start, const job::Job& job, int ranks_of_batch)
    : kind_(job.run.traced),
      goes_on_(start.step > 0 && keep_lines(start.earlier, start.folder, kind_, start.step)),
      log_(start.folder / kBlocksFile, goes_on_) {
  if (goes_on_) return;
  log_.write({{"trace", name_of(kind_)},
              {"precision", job.settings.get_string("train.precision")},
              {"ranks_of_batch", int64_t{ranks_of_batch}}});
}

void BlockFileWriter::write(const train::Trace& step) {
  for (const auto& one : step) {
    storage::Fields fields = {{"step", one.step},
                              {"micro_batch", one.micro_batch},
                              {"block", one.block},
                              {"tensor", one.tensor},
                              {"count", one.count}};
    if (kind_ == job::Traced::hash) {
      fields.emplace_back("hash", text_of(one.hash));
    } else {
      fields.insert(
          fields.end(),
          {{"sum", one.sum}, {"squares", one.squares}, {"largest", one.largest}, {"projection", one.projection}});
    }
    log_.write(fields);
  }
}

BlockFile read_block_file(const fs::path& run) {
  std::error_code ignored;
  const auto path = fs::is_directory(run, ignored) ? run / kBlocksFile : run;
  std::ifstream file(path);
  if (!file) {
    throw DataError("blocks " + quote(path.string()) + " are missing, wanted those of a run",
                    "train it with trace.blocks=hash or trace.blocks=stats");
  }
  BlockFile result;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      const auto parsed = nlohmann::json::parse(line);
      if (number > 1) {
        result.trace.push_back(numbers_of(parsed, result.kind));
        continue;
      }
      result = {.kind = parsed.at("trace"),
                .precision = parsed.at("precision"),
                .ranks_of_batch = parsed.at("ranks_of_batch"),
                .trace = {}};
    } catch (const std::exception&) {
      throw DataError("blocks " + quote(path.string()) + ": line " + std::to_string(number) +
                      " is none of trace.blocks");
    }
  }
  if (number < 2) {
    throw DataError("blocks " + quote(path.string()) + " hold no step, wanted one or more", "train the run again");
  }
  return result;
}

}  // namespace tandem::cli
