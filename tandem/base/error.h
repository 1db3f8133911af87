#pragma once
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

namespace tandem {

/// The program's exit status, for scripts. The values are those of sysexits.h where it names one.
enum class ExitCode : int {
  done = 0,
  usage = 64,
  data = 65,
  internal = 70,
  io = 74,
  preempted = 75,
  communication = 76,
  settings = 78,
  out_of_memory = 79,
  non_finite = 80,
};

/// An error that the user can fix, reported in one line: `what[where] is X, wanted Y (rank r of n): remedy`.
///
/// Wrong calls of the C++ API throw c10's errors instead (TORCH_CHECK_VALUE and the like); a peer that does not answer
/// throws c10::DistError.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string fault, std::string remedy = "");

  const char* what() const noexcept override { return text_.c_str(); }
  ExitCode code() const { return code_; }
  const std::string& fault() const { return fault_; }
  const std::string& remedy() const { return remedy_; }

  /// Adds to the text on which rank the error happened. Does nothing if a rank has been set already.
  void set_rank(int rank, int size);

  void set_remedy(std::string remedy);

  /// Replaces fault and remedy by what `rewrite` makes of them: a caller's names for the options of a library.
  void rewrite(const std::function<std::string(const std::string& text)>& rewrite);

 private:
  ExitCode code_;
  std::string fault_, remedy_, text_;
  bool has_rank_ = false;
};

struct UsageError : Error {
  explicit UsageError(std::string fault, std::string remedy = "")
      : Error(ExitCode::usage, std::move(fault), std::move(remedy)) {}
};
struct DataError : Error {
  explicit DataError(std::string fault, std::string remedy = "")
      : Error(ExitCode::data, std::move(fault), std::move(remedy)) {}
};
struct IoError : Error {
  explicit IoError(std::string fault, std::string remedy = "")
      : Error(ExitCode::io, std::move(fault), std::move(remedy)) {}
};
struct SettingsError : Error {
  explicit SettingsError(std::string fault, std::string remedy = "")
      : Error(ExitCode::settings, std::move(fault), std::move(remedy)) {}
};
struct NonFiniteError : Error {
  explicit NonFiniteError(std::string fault, std::string remedy = "")
      : Error(ExitCode::non_finite, std::move(fault), std::move(remedy)) {}
};

/// Not an error: the run was asked to stop, and a later run can resume from what was saved.
struct Interrupted : Error {
  explicit Interrupted(std::string fault, std::string remedy = "")
      : Error(ExitCode::preempted, std::move(fault), std::move(remedy)) {}
};

/// Throws the error as the type that belongs to its code.
[[noreturn]] void throw_typed(const Error& error);

/// Any other exception of a rank, with the rank before its text. Holds the original as its nested exception.
struct RankError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Must be called inside a catch block: rethrows the current exception with the rank in its text. Error and c10::Error
/// keep their type; any other exception becomes a RankError that holds the original as its nested exception.
[[noreturn]] void rethrow_with_rank(int rank, int size);

/// The error as one line for the user, without a C++ stack trace.
std::string message_of(const std::exception& error);

/// The exit code that belongs to an exception.
ExitCode exit_code_of(const std::exception& error);

}  // namespace tandem
