#include "tandem/comm/detail/failure.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tandem/base/env.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/rendezvous/environment.h"
#include "tandem/storage/named_file.h"

namespace tandem::comm::detail {
namespace {

constexpr std::chrono::seconds kTimeForTheFirst{5};

Place place_of_this_process() {
  try {
    if (const auto launch = rendezvous::detect_launch()) return {launch->rank, launch->size, launch->local_rank};
  } catch (const std::exception&) {
    // The launcher's variables may be the very fault that is being reported.
  }
  return {};
}

/// Returns false if there is no such file, or it cannot be written.
bool write_error_file(const std::string& message, const std::optional<LastWord>& last) {
  const auto path = env::get("TORCHELASTIC_ERROR_FILE");
  if (!path) return false;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  try {
    storage::write_named_file("TORCHELASTIC_ERROR_FILE", *path, torchelastic_error(message, seconds, last));
    return true;
  } catch (const std::exception& error) {
    if (!last) log::warn(message_of(error));  // what is being reported matters more
    return false;
  }
}

/// True if this process is a rank of `tandem launch`, the leader of its process group, and not a program that a rank
/// has started, whose status may change nothing.
bool is_rank_of_own_launcher() {
  return env::get("TORCHELASTIC_RUN_ID") == rendezvous::kOwnRunId && getpid() == getpgrp();
}

/// `tandem launch` prints one of the lines that its ranks leave.
bool leave_line(const std::exception& error, Place place) {
  const bool is_everyones = !failure_line(error, place);
  if (is_everyones) place = {place.rank - place.local_rank, place.size, 0};
  return write_error_file(message_of(error),
                          LastWord{failure_line(error, place), static_cast<int>(exit_code_of(error))});
}

std::string with_rank(const std::exception& error, const Place& place) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) {
    Error named = *own;
    named.set_rank(place.rank, place.size);
    return named.what();
  }
  return message_of(error) + " (rank " + std::to_string(place.rank) + " of " + std::to_string(place.size) + ")";
}

}  // namespace

std::optional<std::string> failure_line(const std::exception& error, const Place& place) {
  auto text = message_of(error);
  const auto code = exit_code_of(error);
  const auto where = "rank " + std::to_string(place.rank) + " of " + std::to_string(place.size);
  const bool names_rank = text.find("(rank ") != text.npos || text.find(where) != text.npos;
  const bool is_everyones = (code == ExitCode::usage || code == ExitCode::settings) && !names_rank;
  if (is_everyones && place.local_rank != 0) return std::nullopt;
  if (place.size > 1 && !names_rank && !(is_everyones && place.rank == 0)) text = with_rank(error, place);
  return "error: " + text;
}

std::string torchelastic_error(const std::string& message, int64_t seconds, const std::optional<LastWord>& last) {
  // torchrun's table shows the call stack, and the message only if there is no call stack.
  nlohmann::json error = {
      {"message",
       {{"message", message}, {"extraInfo", {{"py_callstack", message}, {"timestamp", std::to_string(seconds)}}}}}};
  if (last) error["status"] = last->status;
  if (last && last->line) error["line"] = *last->line;
  return error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int report_failure(const std::exception& error, const std::function<bool()>& stop_requested) {
  const auto code = static_cast<int>(exit_code_of(error));
  const auto place = place_of_this_process();
  const bool is_own = is_rank_of_own_launcher();
  if (is_own && leave_line(error, place)) return code;
  if (!is_own) write_error_file(message_of(error), std::nullopt);
  if (const auto line = failure_line(error, place)) {
    log::info(*line);
  } else {
    // Launchers end the whole job when the first process fails. That must not be this process, which prints nothing.
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + kTimeForTheFirst;
    while (Clock::now() < end && !(stop_requested && stop_requested())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  return code;
}

}  // namespace tandem::comm::detail
