#pragma once
#include <memory>

namespace c10d {
class Store;
}

namespace tandem::cli {

/// The key-value store at which the ranks of one machine meet (c10d::TCPStore), served on a free port of 127.0.0.1 by
/// threads of its own for as long as the object lives. Throws IoError when no port can be had.
class StoreServer {
 public:
  StoreServer();
  ~StoreServer();

  int port() const { return port_; }

 private:
  struct Holder;
  std::unique_ptr<Holder> holder_;
  int port_ = 0;
};

}  // namespace tandem::cli
