#include "tandem/cli/store_server.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tandem/comm/listen.h"

namespace tandem::cli {
namespace {

TEST(StoreServer, ServesClientsOnAPortOfItsOwn) {
  const StoreServer first, second;
  EXPECT_NE(first.port(), second.port());
  const auto connect = [](const StoreServer& server) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(server.port());
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  };
  const auto writer = connect(first), reader = connect(first), other = connect(second);
  writer->set("key", std::vector<uint8_t>{1, 2, 3});
  EXPECT_EQ(reader->get("key"), (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_FALSE(other->check({"key"}));
}

TEST(StoreServer, ListensOnTheLoopbackAlone) {
  const StoreServer server;
  const auto elsewhere = comm::listen_at("127.0.0.2", server.port());  // who listens everywhere holds this one too
  EXPECT_EQ(elsewhere.port, server.port());
  close(elsewhere.file);
}

}  // namespace
}  // namespace tandem::cli
