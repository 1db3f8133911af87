#include "tandem/rendezvous/listen.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include "tandem/rendezvous/detail/addresses.h"

namespace tandem::rendezvous {
namespace {

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  // Both address families store the port at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

/// `is_dual`: an IPv6 socket takes IPv4 connections as well.
Listener listen_on(const sockaddr& address, socklen_t size, bool is_dual) {
  Listener listener;
  listener.file = socket(address.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1, no = 0;  // connections of an earlier job may still be closing
  if (listener.file >= 0 && setsockopt(listener.file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      (!is_dual || setsockopt(listener.file, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) &&
      bind(listener.file, &address, size) == 0 && listen(listener.file, SOMAXCONN) == 0) {
    listener.port = port_of(listener.file);
    return listener;
  }
  const int error = errno;
  if (listener.file >= 0) close(listener.file);
  throw std::system_error(error, std::generic_category());
}

bool is_not_here(const std::system_error& error) {
  const int code = error.code().value();
  return code == EADDRNOTAVAIL || code == EAFNOSUPPORT;
}

}  // namespace

Listener listen_at(const std::string& host, int port) {
  const detail::Addresses addresses(host, port);
  std::optional<std::system_error> fault;
  for (const bool is_ipv4 : {true, false}) {
    for (const auto* one = addresses.first(); one != nullptr; one = one->ai_next) {
      if ((one->ai_family == AF_INET) != is_ipv4) continue;
      try {
        return listen_on(*one->ai_addr, one->ai_addrlen, false);
      } catch (const std::system_error& error) {
        if (!is_not_here(error)) throw;
        if (!fault) fault = error;
      }
    }
  }
  throw fault ? *fault : std::system_error(EADDRNOTAVAIL, std::generic_category());
}

Listener listen_everywhere(int port) {
  sockaddr_in6 all{};
  all.sin6_family = AF_INET6;
  all.sin6_port = htons(static_cast<uint16_t>(port));
  try {
    return listen_on(reinterpret_cast<const sockaddr&>(all), sizeof all, true);
  } catch (const std::system_error& error) {
    if (!is_not_here(error)) throw;
    return listen_at("0.0.0.0", port);
  }
}

}  // namespace tandem::rendezvous
