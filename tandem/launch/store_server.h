#pragma once
#include <memory>

namespace c10d {
class Store;
}

namespace tandem::launch {

/// Serves the key-value store at which the ranks of one machine meet (c10d::TCPStore), on threads of its own, while the
/// object lives.
class StoreServer {
 public:
  /// `socket` must listen at 127.0.0.1 on `port`; the store closes it.
  StoreServer(int socket, int port);
  ~StoreServer();

 private:
  struct Holder;
  std::unique_ptr<Holder> holder_;
};

}  // namespace tandem::launch
