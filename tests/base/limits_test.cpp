#include "tandem/base/limits.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "tests/support/text_of.h"

namespace tandem {
namespace {

/// Sets a limit of this process while it lives.
struct Limit {
  Limit(__rlimit_resource of, rlim_t value) : resource(of) {
    getrlimit(resource, &before);
    const rlimit lower{value, before.rlim_max};
    setrlimit(resource, &lower);
  }
  ~Limit() { setrlimit(resource, &before); }

  const __rlimit_resource resource;
  rlimit before{};
};

std::error_code code(int fault) { return {fault, std::generic_category()}; }

TEST(Limits, ARefusalNamesTheLimit) {
  const Limit files(RLIMIT_NOFILE, 100), processes(RLIMIT_NPROC, 5000);
  EXPECT_EQ(limits_on(Limited::files), "ulimit -n is 100");
  EXPECT_NE(limits_on(Limited::threads).find("ulimit -u is 5000"), std::string::npos);
  const auto error = refusal(Limited::files, "a pipe cannot be made", EMFILE);
  EXPECT_EQ(error.code(), ExitCode::out_of_memory);
  EXPECT_STREQ(error.what(),
               "a pipe cannot be made: Too many open files (ulimit -n is 100): raise the limit, or use fewer ranks");
}

TEST(Limits, WhatOtherLibrariesThrowIsTold) {
  const Limit files(RLIMIT_NOFILE, 100);
  const auto line = [](const std::exception& error) {
    EXPECT_EQ(exit_code_of(error), ExitCode::out_of_memory) << error.what();
    return message_of(error);
  };
  EXPECT_TRUE(line(std::bad_alloc()).starts_with("memory cannot be allocated: Cannot allocate memory"));
  EXPECT_TRUE(line(std::system_error(code(EAGAIN)))
                  .starts_with("a thread cannot be started: Resource temporarily unavailable"));
  EXPECT_EQ(line(std::runtime_error("[a.cc:4] socket: Too many open files")),
            "a descriptor cannot be opened: Too many open files (ulimit -n is 100): raise the limit, or use fewer "
            "ranks");
  const auto text = test::text_of([&] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: 5 bytes"); });
  EXPECT_TRUE(line(std::runtime_error(text)).starts_with("memory cannot be allocated")) << text;
}

TEST(Limits, OtherFaultsAreNoRefusals) {
  EXPECT_FALSE(refusal_in(std::runtime_error("away")));
  EXPECT_FALSE(refusal_in(std::system_error(code(ECONNRESET))));
  EXPECT_FALSE(refusal_in(IoError("'a' cannot be opened", "Too many open files"))) << "a file of data";
}

TEST(Limits, TheRankIsNamed) {
  try {
    try {
      throw std::bad_alloc();
    } catch (...) {
      rethrow_with_rank(1, 4);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("(rank 1 of 4)"), std::string::npos) << error.what();
  }
}

TEST(Limits, ADescriptorThatIsRefused) {
  const Limit files(RLIMIT_NOFILE, 0);
  EXPECT_EQ(test::text_of([] { check_descriptor(dup(0), "a pipe cannot be made"); }),
            "a pipe cannot be made: Too many open files (ulimit -n is 0): raise the limit, or use fewer ranks");
  EXPECT_EQ(test::text_of([] {
              errno = EACCES;
              check_descriptor(-1, "a pipe cannot be made");
            }),
            "a pipe cannot be made: Permission denied");
}

}  // namespace
}  // namespace tandem
