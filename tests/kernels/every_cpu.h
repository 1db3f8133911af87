#pragma once
#include <gtest/gtest.h>

#include <string>

#include "tandem/base/cpu.h"

namespace tandem::kernels {

/// Tests that run once for each target that this machine has.
class EveryCpu : public testing::TestWithParam<cpu::Target> {
 protected:
  void SetUp() override { cpu::choose(GetParam()); }
  void TearDown() override { cpu::choose(before_); }

 private:
  cpu::Target before_ = cpu::chosen();
};

inline std::string cpu_name(const testing::TestParamInfo<cpu::Target>& info) { return cpu::name(info.param); }

}  // namespace tandem::kernels
