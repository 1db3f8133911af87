#pragma once
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/train/temporary_folder.h"

namespace tandem::train {

/// The interpreter that has torch: TANDEM_PYTHON, that of .venv, or python3.
inline std::string python() {
  if (const char* named = std::getenv("TANDEM_PYTHON")) return named;
  if (const char* source = std::getenv("TANDEM_SOURCE_DIR")) {
    const auto own = std::filesystem::path(source) / ".venv/bin/python";
    if (std::filesystem::exists(own)) return own.string();
  }
  return "python3";
}

struct PythonResult {
  int status;
  std::string output;
};

/// Runs `script` in `folder`; output holds stdout and stderr.
inline PythonResult run_python(const TemporaryFolder& folder, const std::string& script) {
  spill(folder / "script.py", script);
  const auto command = "cd '" + folder.path().string() + "' && '" + python() + "' script.py 2>&1";
  auto* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> piece;
  for (size_t count; (count = fread(piece.data(), 1, piece.size(), pipe)) > 0;) output.append(piece.data(), count);
  return {pclose(pipe), output};
}

inline bool python_has_safetensors() {
  static const bool has = [] {
    const TemporaryFolder folder;
    return run_python(folder, "import safetensors.torch, torch").status == 0;
  }();
  return has;
}

}  // namespace tandem::train
