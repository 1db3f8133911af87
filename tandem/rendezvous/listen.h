#pragma once
#include <string>

namespace tandem::rendezvous {

/// A socket that listens at one address of this machine. The caller must close `file`.
struct Listener {
  int file = -1;
  int port = 0;
};

/// Listens at one address of `host`, at an IPv4 one if this machine has it. Port 0: any free port. Throws
/// std::system_error (EADDRINUSE: the port is taken; EADDRNOTAVAIL: not an address of this machine).
Listener listen_at(const std::string& host, int port);

/// Listens at all addresses of this machine, IPv6 and IPv4. Throws as listen_at().
Listener listen_everywhere(int port);

}  // namespace tandem::rendezvous
