#include "tandem/rendezvous/detail/addresses.h"

#include <netinet/in.h>
#include <sys/socket.h>

namespace tandem::rendezvous::detail {

Addresses::Addresses(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  error_ = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &first_);
  if (error_ != 0) first_ = nullptr;
}

Addresses::~Addresses() {
  if (first_ != nullptr) freeaddrinfo(first_);
}

bool Addresses::is_loopback() const {
  if (first_ == nullptr) return false;
  for (const auto* one = first_; one != nullptr; one = one->ai_next) {
    if (one->ai_family == AF_INET) {
      const auto& address = reinterpret_cast<const sockaddr_in&>(*one->ai_addr).sin_addr;
      if (ntohl(address.s_addr) >> 24 != IN_LOOPBACKNET) return false;
    } else if (one->ai_family == AF_INET6) {
      if (!IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(*one->ai_addr).sin6_addr)) return false;
    }
  }
  return true;
}

}  // namespace tandem::rendezvous::detail
