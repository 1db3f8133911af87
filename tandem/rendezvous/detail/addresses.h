#pragma once
#include <netdb.h>

#include <string>

namespace tandem::rendezvous::detail {

/// The addresses that a host's name has on this machine.
class Addresses {
 public:
  Addresses(const std::string& host, int port);
  ~Addresses();
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  int error() const { return error_; }              // of getaddrinfo; 0: none
  const addrinfo* first() const { return first_; }  // null when there is an error

  /// True if all addresses are loopback ones, as for localhost, and for a machine's own name on Debian (127.0.1.1).
  bool is_loopback() const;

 private:
  int error_ = 0;
  addrinfo* first_ = nullptr;
};

}  // namespace tandem::rendezvous::detail
