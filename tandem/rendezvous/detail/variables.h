#pragma once
#include <optional>
#include <string>

#include "tandem/rendezvous/environment.h"

namespace tandem::rendezvous::detail {

/// Reads environment variables. One that is empty is not set.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return text(name).has_value(); }
  std::optional<std::string> text(const char* name) const;

  /// Throws SettingsError if the variable is not set, or is no whole number.
  int number(const char* name) const;
  int number_or(const char* name, int other) const { return has(name) ? number(name) : other; }

  /// The first of these that is set; the last one if none is.
  const char* first_set(std::initializer_list<const char*> names) const;

 private:
  const Environment& environment_;
};

/// What a launcher's variables say of this process, and which of them do.
struct Claim {
  int rank = 0, size = 1;
  const char *rank_name = "", *size_name = "";
  Launch (*read)(const Variables& variables) = nullptr;  // all of it
};

/// Sets address and port, those of MASTER_ADDR and MASTER_PORT if they are set. `host`: of rank 0, "" if it is not
/// known; `job`: a text that only the processes of this job have, from which they compute the port. A process by itself
/// needs neither. Throws SettingsError.
void set_address(Launch& launch, const Variables& variables, const std::string& host, const std::string& job);

}  // namespace tandem::rendezvous::detail
