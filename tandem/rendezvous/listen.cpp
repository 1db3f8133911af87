#include "tandem/rendezvous/listen.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "tandem/rendezvous/detail/addresses.h"

namespace tandem::rendezvous {
namespace {

const addrinfo* choose(const detail::Addresses& addresses) {
  for (const auto* one = addresses.first(); one != nullptr; one = one->ai_next) {
    if (one->ai_family == AF_INET) return one;
  }
  return addresses.first();
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  // Both address families store the port at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

Listener listen_at(const std::string& host, int port) {
  const detail::Addresses addresses(host, port);
  const auto* address = choose(addresses);
  if (address == nullptr) throw std::system_error(EADDRNOTAVAIL, std::generic_category());
  Listener listener;
  listener.file = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;  // connections of an earlier job may still be closing
  if (listener.file >= 0 && setsockopt(listener.file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      bind(listener.file, address->ai_addr, address->ai_addrlen) == 0 && listen(listener.file, SOMAXCONN) == 0) {
    listener.port = port_of(listener.file);
    return listener;
  }
  const int error = errno;
  if (listener.file >= 0) close(listener.file);
  throw std::system_error(error, std::generic_category());
}

}  // namespace tandem::rendezvous
