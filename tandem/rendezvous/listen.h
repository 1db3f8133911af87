#pragma once
#include <string>

namespace tandem::rendezvous {

/// A socket that listens at one address of this machine. The caller must close `file`.
struct Listener {
  int file = -1;
  int port = 0;
};

/// Listens at the address of `host` only, at the IPv4 one if there are several. Port 0: any free port. Throws
/// std::system_error (EADDRINUSE: the port is taken; EADDRNOTAVAIL: not an address of this machine).
Listener listen_at(const std::string& host, int port);

}  // namespace tandem::rendezvous
