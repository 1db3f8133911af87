#pragma once
#include <map>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"
#include "tests/support/files.h"

namespace tandem::test {

/// The interpreter that has torch: TANDEM_PYTHON, else that of .venv in the sources, else python3.
std::string python();

struct PythonResult {
  int status;
  std::string output;
};

/// Runs `script` in `folder`; output holds stdout and stderr.
PythonResult run_python(const TemporaryFolder& folder, const std::string& script);

/// Whether Python finds them. Importing torch takes seconds; looking for it does not.
bool python_has_torch();
bool python_has_safetensors();  // and torch

struct OracleAnswer {
  bool missing = false;                   // Python or a package of it is not there: skip, with `text`
  std::string text;                       // what the script printed
  std::map<std::string, Tensor> tensors;  // what it saved
};

/// Runs tests/oracle/`script` with `arguments` and a file's path behind them, where it saves a dictionary of tensors.
/// Throws std::runtime_error when the script fails.
OracleAnswer ask_python(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace tandem::test
