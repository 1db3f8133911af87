#pragma once
#include <memory>
#include <string>

namespace c10d {
class Store;
}

namespace tandem::launch {

/// Serves the key-value store at which the ranks of one machine meet (c10d::TCPStore), on threads of its own, while the
/// object lives.
class StoreServer {
 public:
  /// `socket` must listen at `host` on `port`; the store closes it.
  StoreServer(int socket, int port, const std::string& host = "127.0.0.1");
  ~StoreServer();

 private:
  struct Holder;
  std::unique_ptr<Holder> holder_;
};

}  // namespace tandem::launch
