#include "tandem/launch/store_server.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tandem/rendezvous/listen.h"

namespace tandem::launch {
namespace {

TEST(StoreServer, ServesClientsOnAPortOfItsOwn) {
  const auto one = rendezvous::listen_at("127.0.0.1", 0), two = rendezvous::listen_at("127.0.0.1", 0);
  const StoreServer first(one.file, one.port), second(two.file, two.port);
  const auto connect = [](const rendezvous::Listener& server) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(server.port);
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  };
  const auto writer = connect(one), reader = connect(one), other = connect(two);
  writer->set("key", std::vector<uint8_t>{1, 2, 3});
  EXPECT_EQ(reader->get("key"), (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_FALSE(other->check({"key"}));
}

TEST(StoreServer, ListensOnTheLoopbackAlone) {
  const auto here = rendezvous::listen_at("127.0.0.1", 0);
  const StoreServer server(here.file, here.port);
  const auto elsewhere = rendezvous::listen_at("127.0.0.2", here.port);  // who listens everywhere holds this one too
  EXPECT_EQ(elsewhere.port, here.port);
  close(elsewhere.file);
}

}  // namespace
}  // namespace tandem::launch
