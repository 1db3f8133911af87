#include "tests/support/python.h"

#include <sys/wait.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace tandem::test {
namespace {

namespace fs = std::filesystem;

constexpr int kMissing = 77, kNoSuchCommand = 127;

std::string quoted(const std::string& text) { return "'" + text + "'"; }

PythonResult run_shell(const std::string& command) {
  auto* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("no shell to start " + command);
  std::string output;
  std::array<char, 4096> piece;
  for (size_t count; (count = fread(piece.data(), 1, piece.size(), pipe)) > 0;) output.append(piece.data(), count);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output};
}

std::map<std::string, Tensor> load(const fs::path& path) {
  const auto bytes = slurp(path);
  std::map<std::string, Tensor> tensors;
  for (const auto& entry : torch::jit::pickle_load({bytes.begin(), bytes.end()}).toGenericDict()) {
    tensors.emplace(entry.key().toStringRef(), entry.value().toTensor());
  }
  return tensors;
}

bool python_finds(const std::string& package) {
  const auto script = "import importlib.util, sys\nsys.exit(not importlib.util.find_spec('" + package + "'))\n";
  return run_python(TemporaryFolder(), script).status == 0;
}

}  // namespace

std::string python() {
  if (const char* named = std::getenv("TANDEM_PYTHON")) return named;
  const auto own = sources() / ".venv/bin/python";
  return fs::exists(own) ? own.string() : "python3";
}

PythonResult run_python(const TemporaryFolder& folder, const std::string& script) {
  spill(folder / "script.py", script);
  return run_shell("cd " + quoted(folder.path().string()) + " && " + quoted(python()) + " script.py");
}

bool python_has_torch() {
  static const bool has = python_finds("torch");
  return has;
}

bool python_has_safetensors() {
  static const bool has = python_has_torch() && python_finds("safetensors");
  return has;
}

OracleAnswer ask_python(const std::string& script, const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  const auto file = folder / "answer.pt";
  std::string command = quoted(python()) + " " + quoted((sources() / "tests/oracle" / script).string());
  for (const auto& argument : arguments) command += " " + quoted(argument);
  const auto [status, text] = run_shell(command + " " + quoted(file.string()));
  OracleAnswer answer;
  answer.text = text;
  answer.missing = status == kMissing || status == kNoSuchCommand;
  if (status == 0) answer.tensors = load(file);
  if (status != 0 && !answer.missing) throw std::runtime_error(command + " failed:\n" + answer.text);
  return answer;
}

}  // namespace tandem::test
