#include "tandem/rendezvous/endpoint.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace tandem::rendezvous {
namespace {

/// `host` may have a zone: the interface of a link-local address, "%eth0".
bool is_ipv6(const std::string& host) {
  in6_addr address;
  const auto zone = host.find('%');
  return zone + 1 != host.size() && inet_pton(AF_INET6, host.substr(0, zone).c_str(), &address) == 1;
}

bool is_own(const sockaddr_in& address) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno != EAFNOSUPPORT;  // another fault is for the caller's own socket to meet
  const bool is_elsewhere =
      bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == EADDRNOTAVAIL;
  close(socket);
  return !is_elsewhere;
}

}  // namespace

std::string text_of(const Endpoint& endpoint) {
  const bool has_colon = endpoint.host.find(':') != std::string::npos;
  return (has_colon ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

std::optional<std::string> without_brackets(const std::string& host) {
  if (host.find_first_of("[]") == std::string::npos) return host;
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return std::nullopt;
  auto inner = host.substr(1, host.size() - 2);
  return is_ipv6(inner) ? std::optional(std::move(inner)) : std::nullopt;
}

std::optional<std::pair<std::string, std::string>> split_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  const auto host = without_brackets(text.substr(0, colon));
  if (!host || host->empty()) return std::nullopt;
  if (host->find(':') != std::string::npos && !is_ipv6(*host)) return std::nullopt;
  return std::pair(*host, text.substr(colon + 1));
}

std::string loopback_address() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return is_own(address) ? "127.0.0.1" : "::1";
}

}  // namespace tandem::rendezvous
