#pragma once
#include <optional>
#include <string>
#include <utility>

namespace tandem::rendezvous {

/// A place on a network, without brackets around an IPv6 address: "host0", "10.0.0.1", "::1", "fe80::1%eth0".
struct Endpoint {
  std::string host;
  int port = 0;
};

/// "host0:29500", "[::1]:29500".
std::string text_of(const Endpoint& endpoint);

/// Host and port of "host0:29500", "10.0.0.1:29500", "[::1]:29500" or "::1:29500"; nullopt if `text` is none of these.
/// The port is not read.
std::optional<std::pair<std::string, std::string>> split_endpoint(const std::string& text);

/// "::1" of "[::1]"; any other host unchanged; nullopt if brackets hold no IPv6 address, or one stands alone.
std::optional<std::string> without_brackets(const std::string& host);

/// The address at which processes of this machine reach each other: 127.0.0.1, or ::1 where there is no IPv4.
std::string loopback_address();

}  // namespace tandem::rendezvous
