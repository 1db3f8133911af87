#include "tandem/comm/run_main.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/limits.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"

namespace tandem::comm {
namespace {

struct Told {
  int status;
  std::string err;
};

template <class Body>
Told run(const Body& body) {
  testing::internal::CaptureStderr();
  const int status = run_main(body);
  return {status, testing::internal::GetCapturedStderr()};
}

TEST(RunMain, GivesTheStatusOfItsBody) {
  EXPECT_EQ(run([] {}).status, 0);
  const auto told = run([] { return 7; });
  EXPECT_EQ(told.status, 7);
  EXPECT_EQ(told.err, "");
}

TEST(RunMain, ARankThatThrowsIsOneLineAndItsStatus) {
  const auto data = run([] {
    run_ranks(3, [](ProcessGroup& group) {
      if (group.rank() == 1) throw DataError("image 'a.png' is not an image", "remove it");
      barrier(group);
    });
  });
  EXPECT_EQ(data.status, 65);
  EXPECT_EQ(data.err, "error: image 'a.png' is not an image (rank 1 of 3): remove it\n");
}

TEST(RunMain, TorchsErrorsComeWithoutTheirStackTrace) {
  const auto torch = run([] { run_ranks(2, [](ProcessGroup&) { at::ones({2}).mm(at::ones({2})); }); });
  EXPECT_EQ(torch.status, 70);
  EXPECT_TRUE(torch.err.starts_with("error: ")) << torch.err;
  EXPECT_EQ(std::ranges::count(torch.err, '\n'), 1) << torch.err;
  EXPECT_EQ(torch.err.find("frame #"), std::string::npos) << torch.err;
}

TEST(RunMain, WhateverIsThrownIsTold) {
  const auto told = run([] { throw 42; });
  EXPECT_EQ(told.status, 70);
  EXPECT_EQ(told.err, "error: an exception of unknown type\n");
}

TEST(RunMainDeathTest, WhatALibrarysThreadIsRefusedEndsWithALine) {
  EXPECT_EXIT(run_main([] { std::thread([] { throw std::bad_alloc(); }).join(); }), testing::ExitedWithCode(79),
              "^error: memory cannot be allocated: Cannot allocate memory");
  EXPECT_EXIT(end_process(refusal(Limited::threads, "a thread cannot be started", EAGAIN)), testing::ExitedWithCode(79),
              "^error: a thread cannot be started: Resource temporarily unavailable");
}

TEST(RunMainDeathTest, AnExceptionOfARankThatNothingCatchesIsOneLine) {
  const auto uncaught = [](const std::exception_ptr& fault) noexcept {
    run_ranks(3, [&](ProcessGroup& group) {
      if (group.rank() == 1) std::rethrow_exception(fault);
      barrier(group);
    });
  };
  EXPECT_EXIT(uncaught(std::make_exception_ptr(DataError("image 'a.png' is not an image", "remove it"))),
              testing::ExitedWithCode(65), "^error: image 'a.png' is not an image .rank 1 of 3.: remove it\n$");
  EXPECT_EXIT(uncaught(std::make_exception_ptr(std::runtime_error("out of paper"))), testing::ExitedWithCode(70),
              "^error: rank 1 of 3: out of paper\n$");
}

}  // namespace
}  // namespace tandem::comm
