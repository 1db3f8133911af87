#include "tandem/base/limits.h"

#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <new>
#include <string_view>
#include <system_error>

#include "tandem/base/format.h"

namespace tandem {
namespace {

void add(std::string& list, const std::string& one) { list += (list.empty() ? "" : ", ") + one; }

void add_resource(std::string& list, __rlimit_resource resource, const char* name, bool is_bytes = false) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const auto value = static_cast<int64_t>(limit.rlim_cur);
  add(list, std::string(name) + " is " + (is_bytes ? format_bytes(value) : std::to_string(value)));
}

void add_group(std::string& list, const char* path, const char* name) {
  std::string value;
  if (std::ifstream(path) >> value && value != "max") add(list, std::string(name) + " is " + value);
}

const char* remedy_for(Limited kind) {
  switch (kind) {
    case Limited::threads:
    case Limited::processes:
      return "raise the limit, or use fewer ranks and threads";
    case Limited::files:
      return "raise the limit, or use fewer ranks";
    case Limited::memory:
      return "raise the limit, or make the job smaller";
  }
  return "";
}

/// What libraries quote of the system's texts.
struct Quoted {
  std::string_view text;
  Limited kind;
  int fault;
};
constexpr std::array kQuoted = {
    Quoted{"Too many open files", Limited::files, EMFILE}, Quoted{"Cannot allocate memory", Limited::memory, ENOMEM},
    Quoted{"can't allocate memory", Limited::memory, ENOMEM}, Quoted{"std::bad_alloc", Limited::memory, ENOMEM}};

Error refusal_of(Limited kind, int fault) {
  switch (kind) {
    case Limited::threads:
      return refusal(kind, "a thread cannot be started", fault);
    case Limited::processes:
      return refusal(kind, "a process cannot be started", fault);
    case Limited::files:
      return refusal(kind, "a descriptor cannot be opened", fault);
    case Limited::memory:
      break;
  }
  return refusal(Limited::memory, "memory cannot be allocated", fault);
}

std::optional<Error> refusal_of_code(int code) {
  if (code == EAGAIN) return refusal_of(Limited::threads, code);
  if (code == EMFILE || code == ENFILE) return refusal_of(Limited::files, code);
  if (code == ENOMEM) return refusal_of(Limited::memory, code);
  return std::nullopt;
}

}  // namespace

std::string limits_on(Limited kind) {
  std::string list;
  if (kind == Limited::files) {
    add_resource(list, RLIMIT_NOFILE, "ulimit -n");
    return list;
  }
  if (kind != Limited::memory) {
    add_resource(list, RLIMIT_NPROC, "ulimit -u");
    add_group(list, "/sys/fs/cgroup/pids.max", "pids.max");
    add_group(list, "/sys/fs/cgroup/pids/pids.max", "pids.max");
  }
  add_resource(list, RLIMIT_AS, "ulimit -v", true);  // a thread's stack is memory too
  if (kind == Limited::memory) add_resource(list, RLIMIT_DATA, "ulimit -d", true);
  return list;
}

Error refusal(Limited kind, const std::string& what, int fault) {
  const auto limits = limits_on(kind);
  return {ExitCode::out_of_memory,
          what + ": " + std::generic_category().message(fault) + (limits.empty() ? "" : " (" + limits + ")"),
          remedy_for(kind)};
}

std::optional<Error> refusal_in(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) || dynamic_cast<const c10::OutOfMemoryError*>(&error)) return std::nullopt;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return refusal_of(Limited::memory, ENOMEM);
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return refusal_of_code(system->code().value());
  }
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  const std::string_view text = torch ? torch->what_without_backtrace() : error.what();
  for (const auto& [quoted, kind, fault] : kQuoted) {
    if (text.find(quoted) != text.npos) return refusal_of(kind, fault);
  }
  return std::nullopt;
}

void require_descriptors(int count, const std::string& whom) {
  std::error_code fault;
  int64_t open = 0;
  for (auto file = std::filesystem::directory_iterator("/proc/self/fd", fault); !fault && file != decltype(file)();
       file.increment(fault)) {
    ++open;  // one of them is of this loop
  }
  if (fault.value() == EMFILE || fault.value() == ENFILE) {
    throw refusal(Limited::files, "a descriptor for " + whom + " cannot be opened", fault.value());
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = static_cast<rlim_t>(open + count);
  if (wanted <= limit.rlim_cur) return;
  const rlimit raised{std::min(wanted, limit.rlim_max), limit.rlim_max};
  if (wanted <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
  throw Error(ExitCode::out_of_memory,
              limits_on(Limited::files) + ", wanted " + std::to_string(wanted) + " open files or more for " + whom,
              remedy_for(Limited::files));
}

void check_descriptor(int result, const std::string& what) {
  if (result >= 0) return;
  const int fault = errno;
  if (fault == EMFILE || fault == ENFILE) throw refusal(Limited::files, what, fault);
  if (fault == ENOMEM || fault == ENOBUFS) throw refusal(Limited::memory, what, fault);
  throw IoError(what, std::generic_category().message(fault));
}

}  // namespace tandem
