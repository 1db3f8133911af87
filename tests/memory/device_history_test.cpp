#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/memory/device_memory.h"
#include "tests/support/text_of.h"

namespace tandem::memory {
namespace {

TEST(DeviceHistory, IsRefusedOnTheCpu) {
  EXPECT_EQ(test::text_of<SettingsError>([] { record_device_history(c10::DeviceType::CPU); }),
            "device is cpu, wanted cuda for a snapshot, which is one of CUDA's allocator: pass device=cuda, or --page "
            "for a picture of any device");
}

}  // namespace
}  // namespace tandem::memory
