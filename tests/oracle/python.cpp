#include "tests/oracle/python.h"

#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace tandem::test {
namespace {

namespace fs = std::filesystem;

constexpr int kMissing = 77, kNoSuchCommand = 127;

fs::path sources() { return fs::path(__FILE__).parent_path().parent_path().parent_path(); }

std::string interpreter() {
  if (const char* named = std::getenv("TANDEM_PYTHON")) return named;
  const auto own = sources() / ".venv/bin/python";
  return fs::exists(own) ? own.string() : "python3";
}

/// Removed at the end, whatever happens.
struct ScratchFile {
  ScratchFile() {
    std::string name = (fs::temp_directory_path() / "tandem_oracle_XXXXXX").string();
    const int file = mkstemp(name.data());
    if (file < 0) throw std::runtime_error("no temporary file in " + fs::temp_directory_path().string());
    close(file);
    path = name;
  }
  ~ScratchFile() { fs::remove(path); }
  std::string path;
};

std::map<std::string, Tensor> load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::map<std::string, Tensor> tensors;
  for (const auto& entry : torch::jit::pickle_load(bytes).toGenericDict()) {
    tensors.emplace(entry.key().toStringRef(), entry.value().toTensor());
  }
  return tensors;
}

}  // namespace

OracleAnswer ask_python(const std::string& script, const std::vector<std::string>& arguments) {
  const ScratchFile file;
  std::string command = "'" + interpreter() + "' '" + (sources() / "tests/oracle" / script).string() + "'";
  for (const auto& argument : arguments) command += " '" + argument + "'";
  auto* pipe = popen((command + " '" + file.path + "' 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("no shell to start " + command);
  OracleAnswer answer;
  std::array<char, 4096> piece;
  for (size_t count; (count = fread(piece.data(), 1, piece.size(), pipe)) > 0;) answer.text.append(piece.data(), count);
  const int status = WEXITSTATUS(pclose(pipe));
  answer.missing = status == kMissing || status == kNoSuchCommand;
  if (status == 0) answer.tensors = load(file.path);
  if (status != 0 && !answer.missing) throw std::runtime_error(command + " failed:\n" + answer.text);
  return answer;
}

}  // namespace tandem::test
