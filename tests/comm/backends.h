#pragma once
#include <gtest/gtest.h>

#include <functional>

#include "tandem/comm/world.h"

namespace tandem::test {

/// A test that runs over shared memory and over Gloo.
class OnBackends : public testing::TestWithParam<bool> {
 protected:
  static comm::WorldOptions options() {
    comm::WorldOptions options;
    options.gloo = GetParam();
    options.timeout = std::chrono::seconds(30);
    return options;
  }
  static void on_ranks(int n, const std::function<void(comm::ProcessGroup&)>& body) {
    comm::run_ranks(n, body, options());
  }
};

inline std::string backend_name(const testing::TestParamInfo<bool>& info) { return info.param ? "gloo" : "local"; }

}  // namespace tandem::test
