#pragma once
#include <gtest/gtest.h>

#include <functional>

#include "tandem/comm/world.h"

namespace tandem::test {

/// A test that runs over each way between ranks.
class OnBackends : public testing::TestWithParam<comm::Transport> {
 protected:
  static comm::WorldOptions options() {
    comm::WorldOptions options;
    options.transport = GetParam();
    options.timeout = std::chrono::seconds(30);
    return options;
  }
  static void on_ranks(int n, const std::function<void(comm::ProcessGroup&)>& body) {
    comm::run_ranks(n, body, options());
  }
};

inline const auto kTransports =
    testing::Values(comm::Transport::memory, comm::Transport::segments, comm::Transport::sockets);

inline std::string backend_name(const testing::TestParamInfo<comm::Transport>& info) { return name_of(info.param); }

}  // namespace tandem::test
