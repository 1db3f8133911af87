#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Gives a subcommand's result to whoever asked: `text` on stdout, `json` in --json's file; with `--json -` only the
/// JSON on stdout. In a job of several processes rank 0 calls it. Throws IoError.
void write_result(const Arguments& arguments, const std::string& text, const nlohmann::json& json);

/// Throws IoError when --json's file could not be written: call it before long work.
void check_result_file(const Arguments& arguments);

/// Throws IoError when stdout did not take all that was written to it.
void flush_stdout();

}  // namespace tandem::cli
