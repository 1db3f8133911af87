#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/python.h"

// tandem bench search.
namespace tandem::cli {
namespace {

std::vector<std::string> small(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench",   "search",  "channels=4", "cells=3", "size=8",
                                    "batch=6", "ranks=2", "rounds=1",   "--json",  "-"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(SearchBench, MeasuresEachOrderBesideThePeer) {
  if (!test::python_has_torch()) GTEST_SKIP() << test::python() << " has no torch";
  const auto ended = test::run_command(test::tandem_command(small({"orders=2"})));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto result = nlohmann::json::parse(ended.out);
  EXPECT_TRUE(result["missing"].empty());
  ASSERT_EQ(result["cases"].size(), 2U);
  for (const auto& one : result["cases"]) {
    EXPECT_EQ(one["order"], 2);
    EXPECT_EQ(one["ranks"], 2);
    for (const std::string number : {"seconds", "peer_seconds", "speedup", "peak_bytes", "peer_peak_bytes"}) {
      EXPECT_GT(one[number].get<double>(), 0) << number;
    }
  }
}

TEST(SearchBench, GoesOnWithoutThePeer) {
  const auto ended = test::run_command(test::tandem_command(small({"orders=1", "peers="})));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto result = nlohmann::json::parse(ended.out);
  ASSERT_EQ(result["cases"].size(), 1U);
  EXPECT_TRUE(result["cases"][0]["speedup"].is_null());
}

TEST(SearchBench, WhatItDoesNotKnowIsRefused) {
  const auto ended = test::run_here({"bench", "search", "peers=jax"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_EQ(ended.err, "error: peers names 'jax', wanted torch\n");
}

}  // namespace
}  // namespace tandem::cli
