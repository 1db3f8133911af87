#include "tandem/base/log.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

template <class Write>
std::string stderr_of(Write write) {
  testing::internal::CaptureStderr();
  write();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, ALineIsOneLineAndSteersNoTerminal) {
  EXPECT_EQ(stderr_of([] { log::info("image '\x1b]0;title\a\x1b[2Jx.jpg' is empty"); }),
            "image '\\x1b]0;title\\x07\\x1b[2Jx.jpg' is empty\n");
  EXPECT_EQ(stderr_of([] { log::warn("a\r\nb \x9b"); }), "warning: a\\x0d\\x0ab \\x9b\n");
  EXPECT_EQ(stderr_of([] { log::info("汉字 × 4"); }), "汉字 × 4\n");
}

TEST(Log, AnOpenLineIsWipedFirst) {
  EXPECT_EQ(stderr_of([] {
              log::raw("\r\x1b[K50%", true);
              log::info("note");
              log::info("more");
            }),
            "\r\x1b[K50%\r\x1b[Knote\nmore\n");
}

}  // namespace
}  // namespace tandem
