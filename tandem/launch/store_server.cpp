#include "tandem/launch/store_server.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace tandem::launch {
struct StoreServer::Holder {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer(int socket, int port, const std::string& host) : holder_(std::make_unique<Holder>()) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = socket;
  options.port = static_cast<uint16_t>(port);
  holder_->store = c10::make_intrusive<c10d::TCPStore>(host, options);
}

StoreServer::~StoreServer() = default;

}  // namespace tandem::launch
