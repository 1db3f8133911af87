#pragma once
#include <map>
#include <string>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::test {

struct OracleAnswer {
  bool missing = false;                   // Python or a package of it is not there: skip, with `text`
  std::string text;                       // what the script printed
  std::map<std::string, Tensor> tensors;  // what it saved
};

/// Runs tests/oracle/`script` with `arguments` and a file's path behind them, where it saves a dictionary of tensors.
/// Python: TANDEM_PYTHON, else .venv of the sources, else python3. Throws std::runtime_error when the script fails.
OracleAnswer ask_python(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace tandem::test
