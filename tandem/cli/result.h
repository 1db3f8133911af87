#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/cli/command.h"

namespace tandem::cli {

/// Writes a subcommand's result: `text` to stdout, `json` to the file of --json. With `--json -` only the JSON is
/// written, to stdout; with `--csv -` the text is left out. In a job of several processes only rank 0 may call it.
/// Throws IoError.
void write_result(const Arguments& arguments, const std::string& text, const nlohmann::json& json);

/// Writes the rows of a result to the file of --csv, or to stdout with `--csv -`. Without the flag nothing is written.
/// As write_result(), before which it is called.
void write_rows(const Arguments& arguments, const std::string& csv);

/// Throws IoError if a file that the arguments name for the subcommand's output cannot be written.
void check_output_files(const Command& command, const Arguments& arguments);

/// Flushes stdout. Throws IoError if not all of the output could be written.
void flush_stdout();

}  // namespace tandem::cli
