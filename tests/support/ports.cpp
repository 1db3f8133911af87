#include "tests/support/ports.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace tandem::test {

TakenPort::TakenPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  auto* place = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket_, place, length) != 0 || listen(socket_, 1) != 0 || getsockname(socket_, place, &length) != 0) {
    throw std::runtime_error("no port to listen on");
  }
  number_ = ntohs(address.sin_port);
}

TakenPort::~TakenPort() { close(socket_); }

int free_port() { return TakenPort().number(); }

}  // namespace tandem::test
