#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/cli/command.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/folder.h"
#include "tandem/flight/analysis.h"

namespace tandem::cli {

int run_doctor(const Arguments& arguments) {
  if (arguments.words.size() != 1) {
    throw UsageError("doctor has " + std::to_string(arguments.words.size()) + " folders, wanted one",
                     "tandem doctor RUN/flight");
  }
  std::filesystem::path folder = arguments.words[0];
  std::error_code ignored;
  if (std::filesystem::is_directory(folder / kFlightFolder, ignored)) {
    folder /= kFlightFolder;  // a run's folder
  } else if (const auto before = folder / kFlightBefore; std::filesystem::is_directory(before, ignored)) {
    throw DataError("run '" + folder.string() + "' has no flight records since it was last started, wanted some",
                    "those of before are in '" + before.string() + "'");
  }
  const auto sentence = flight::diagnose_flight(folder);
  write_result(arguments, sentence + "\n", {{"diagnosis", sentence}});
  return 0;
}

}  // namespace tandem::cli
