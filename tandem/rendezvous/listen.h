#pragma once
#include <string>

namespace tandem::rendezvous {

/// A socket that listens at one address of this machine. Whoever takes it closes it.
struct Listener {
  int file = -1;
  int port = 0;
};

/// Listens at `host`'s address, the IPv4 one where there are several; what cannot reach that address cannot connect.
/// Port 0: a free one. Throws std::system_error (EADDRINUSE: the port is taken; EADDRNOTAVAIL: not an address of this
/// machine).
Listener listen_at(const std::string& host, int port);

}  // namespace tandem::rendezvous
