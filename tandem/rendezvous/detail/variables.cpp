#include "tandem/rendezvous/detail/variables.h"

#include <charconv>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/rng.h"
#include "tandem/rendezvous/endpoint.h"

namespace tandem::rendezvous::detail {
namespace {

constexpr int kFirstPort = 10000, kNumPorts = 20000;

int port_from(const std::string& job) { return kFirstPort + static_cast<int>(stream_of(job) % kNumPorts); }

}  // namespace

std::optional<std::string> Variables::text(const char* name) const {
  auto value = environment_(name);
  return value && value->empty() ? std::nullopt : value;
}

int Variables::number(const char* name) const {
  const auto value = text(name);
  if (!value) throw SettingsError(std::string("environment variable ") + name + " is not set", "the launcher sets it");
  int result = 0;
  const auto [end, fault] = std::from_chars(value->data(), value->data() + value->size(), result);
  if (fault != std::errc() || end != value->data() + value->size()) {
    throw SettingsError(std::string("environment variable ") + name + " is " + quote(*value) +
                        ", wanted a whole number");
  }
  return result;
}

const char* Variables::first_set(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    if (has(name)) return name;
  }
  return *(names.end() - 1);
}

void set_address(Launch& launch, const Variables& variables, const std::string& host, const std::string& job) {
  if (launch.size == 1) return;
  const auto given = variables.text("MASTER_ADDR").value_or(host);
  const auto address = without_brackets(given);
  if (!address) {
    throw SettingsError("environment variable MASTER_ADDR is " + quote(given) +
                        ", wanted a host or an address, such as host0, 10.0.0.1 or ::1");
  }
  launch.address = *address;
  launch.port = variables.has("MASTER_PORT") ? variables.number("MASTER_PORT") : port_from(job);
  if (launch.port < 1 || launch.port > 65535) {
    throw SettingsError("environment variable MASTER_PORT is " + std::to_string(launch.port) + ", wanted 1..65535");
  }
  if (launch.address.empty()) {
    throw SettingsError("environment variable MASTER_ADDR is not set",
                        "with ranks on several hosts, set it to the host of rank 0");
  }
}

}  // namespace tandem::rendezvous::detail
