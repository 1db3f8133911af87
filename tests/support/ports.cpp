#include "tests/support/ports.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

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

bool is_served_soon(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  for (int i = 0; i < 200; ++i) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    const bool is_served = connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(socket);
    if (is_served) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace tandem::test
