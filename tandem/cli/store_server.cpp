#include "tandem/cli/store_server.h"

#include <system_error>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tandem/base/error.h"
#include "tandem/comm/listen.h"

namespace tandem::cli {
namespace {

/// The store by itself would listen to the whole network.
comm::Listener listen_here() {
  try {
    return comm::listen_at("127.0.0.1", 0);
  } catch (const std::system_error& error) {
    throw IoError("no port of 127.0.0.1 can be served", error.code().message());
  }
}

}  // namespace

struct StoreServer::Holder {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer() : holder_(std::make_unique<Holder>()) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  const auto listener = listen_here();
  port_ = listener.port;
  options.masterListenFd = listener.file;  // the store closes it
  options.port = static_cast<uint16_t>(port_);
  holder_->store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

StoreServer::~StoreServer() = default;

}  // namespace tandem::cli
