#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/ports.h"
#include "tests/support/python.h"
#include "tests/support/running.h"

// The operators between real processes, and under the eyes of Python's gradcheck.
namespace tandem::comm {
namespace {

std::string operator_rank() { return std::getenv("TANDEM_OPERATOR_RANK"); }

TEST(Processes, EachOperatorIsTheAdjointOfItsGradient) {
  for (int size = 1; size <= 5; ++size) {
    const auto port = std::to_string(test::free_port());
    std::vector<std::unique_ptr<test::Running>> processes;
    for (int rank = 0; rank < size; ++rank) {
      processes.push_back(std::make_unique<test::Running>(std::vector<std::string>{operator_rank(), "adjoints"},
                                                          test::Environment{{"RANK", std::to_string(rank)},
                                                                            {"WORLD_SIZE", std::to_string(size)},
                                                                            {"MASTER_ADDR", "127.0.0.1"},
                                                                            {"MASTER_PORT", port}}));
    }
    for (const auto& process : processes) {
      const auto ended = process->wait();
      EXPECT_EQ(ended.status, 0) << size << " processes\n" << ended.err;
    }
  }
}

TEST(Processes, PythonsGradcheckAndGradgradcheckAgree) {
  const auto ended =
      test::run_command({test::python(), (test::sources() / "tests/oracle/gradcheck.py").string(), operator_rank()});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out, "48 cases of 12 operators\n");
}

}  // namespace
}  // namespace tandem::comm
