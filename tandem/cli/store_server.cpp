#include "tandem/cli/store_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <system_error>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tandem/base/error.h"

namespace tandem::cli {
namespace {

/// A socket bound to a free port of 127.0.0.1: the store by itself would listen to the whole network.
int bind_loopback(int& port) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (file < 0 || bind(file, plain, size) != 0 || listen(file, SOMAXCONN) != 0 ||
      getsockname(file, plain, &size) != 0) {
    const auto reason = std::generic_category().message(errno);
    if (file >= 0) close(file);
    throw IoError("no port of 127.0.0.1 can be served", reason);
  }
  port = ntohs(address.sin_port);
  return file;
}

}  // namespace

struct StoreServer::Holder {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer() : holder_(std::make_unique<Holder>()) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = bind_loopback(port_);  // the store closes it
  options.port = static_cast<uint16_t>(port_);
  holder_->store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

StoreServer::~StoreServer() = default;

}  // namespace tandem::cli
