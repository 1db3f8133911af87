#include "tandem/base/error.h"

#include <c10/util/Exception.h>

#include <filesystem>

#include "tandem/base/limits.h"
#include "tandem/base/quote.h"

namespace tandem {

Error::Error(ExitCode code, std::string fault, std::string remedy)
    : std::runtime_error(fault), code_(code), fault_(std::move(fault)) {
  set_remedy(std::move(remedy));
}

void Error::set_rank(int rank, int size) {
  if (has_rank_) return;
  has_rank_ = true;
  if (size == 1) return;  // with one rank there is nothing to tell apart
  fault_ += " (rank " + std::to_string(rank) + " of " + std::to_string(size) + ")";
  set_remedy(remedy_);
}

void Error::set_remedy(std::string remedy) {
  remedy_ = std::move(remedy);
  text_ = remedy_.empty() ? fault_ : fault_ + ": " + remedy_;
}

void Error::rewrite(const std::function<std::string(const std::string& text)>& rewrite) {
  fault_ = rewrite(fault_);
  set_remedy(rewrite(remedy_));
}

namespace {

template <class Typed>
[[noreturn]] void throw_as(const Error& error) {
  Typed typed("");
  static_cast<Error&>(typed) = error;
  throw typed;
}

}  // namespace

void throw_typed(const Error& error) {
  switch (error.code()) {
    case ExitCode::usage:
      throw_as<UsageError>(error);
    case ExitCode::data:
      throw_as<DataError>(error);
    case ExitCode::io:
      throw_as<IoError>(error);
    case ExitCode::settings:
      throw_as<SettingsError>(error);
    case ExitCode::non_finite:
      throw_as<NonFiniteError>(error);
    case ExitCode::preempted:
      throw_as<Interrupted>(error);
    default:
      throw Error(error);
  }
}

void rethrow_with_rank(int rank, int size) {
  const std::string where = "rank " + std::to_string(rank) + " of " + std::to_string(size);
  try {
    throw;
  } catch (Error& error) {
    error.set_rank(rank, size);
    throw;
  } catch (const std::exception& error) {
    if (auto refused = refusal_in(error)) {
      refused->set_rank(rank, size);
      throw Error(*std::move(refused));
    }
  } catch (...) {
  }
  try {
    throw;
  } catch (c10::Error& error) {
    if (size > 1) error.add_context(where);
    throw;
  } catch (const RankError&) {
    throw;
  } catch (const std::filesystem::filesystem_error& error) {
    IoError own(error.what());
    own.set_rank(rank, size);
    throw own;
  } catch (const std::exception& error) {
    std::throw_with_nested(RankError(where + ": " + error.what()));
  } catch (...) {
    std::throw_with_nested(RankError(where + ": an exception of unknown type"));
  }
}

std::string message_of(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return printable(error.what());
  if (const auto refused = refusal_in(error)) return message_of(*refused);
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  // libtorch adds its source location and blank lines to some texts; a user needs one line.
  for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) text[at] = ' ';
  for (auto at = text.find("  "); at != std::string::npos; at = text.find("  ", at)) text.erase(at, 1);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

ExitCode exit_code_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->code();
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&error)) return ExitCode::io;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error)) return ExitCode::out_of_memory;
  if (const auto refused = refusal_in(error)) return refused->code();
  if (dynamic_cast<const c10::DistError*>(&error)) return ExitCode::communication;
  return ExitCode::internal;
}

}  // namespace tandem
