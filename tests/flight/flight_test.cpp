#include "tandem/flight/analysis.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tests/comm/backends.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::comm {
namespace {

using test::text_of;

class Flight : public test::OnBackends {
 protected:
  /// What the doctor says of a run that fails.
  std::string diagnosis(int n, const std::function<void(ProcessGroup&)>& body, std::chrono::milliseconds timeout) {
    auto with = options();
    with.timeout = timeout;
    with.flight_folder = folder_ / "flight";
    fault_ = text_of([&] { run_ranks(n, body, with); });
    return flight::diagnose_flight(folder_ / "flight");
  }

  test::TemporaryFolder folder_;
  std::string fault_;
};
INSTANTIATE_TEST_SUITE_P(Backends, Flight, test::kTransports, test::backend_name);

constexpr std::chrono::milliseconds kSoon{2000}, kLate{20'000};

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks " << part;
}

TEST_P(Flight, ARankThatThrowsIsNamed) {
  const auto text = diagnosis(
      3,
      [](ProcessGroup& group) {
        for (int step = 0; step < 5; ++step) {
          all_reduce(at::ones({4}), group);
          if (group.rank() == 1 && step == 3) throw DataError("image 'a.png' is not an image");
        }
      },
      kLate);
  expect_has(text,
             "rank 1 ended by itself: image 'a.png' is not an image; its last call was all_reduce #4 of Float [4] "
             "(sum) at flight_test.cpp:");
}

TEST_P(Flight, AnotherOperationIsNamed) {
  const auto text = diagnosis(
      3,
      [](ProcessGroup& group) {
        all_reduce(at::ones({4}), group);
        if (group.rank() == 2) {
          broadcast(at::ones({4}), 0, group);
        } else {
          all_reduce(at::ones({4}), group);
        }
      },
      kSoon);
  expect_has(text, "rank 2 called broadcast #2 of Float [4] with root 0 at flight_test.cpp:");
  expect_has(text, "where ranks 0 and 1 called all_reduce #2 of Float [4] (sum) at flight_test.cpp:");
}

TEST_P(Flight, ARankThatStaysAwayIsNamed) {
  const auto text = diagnosis(
      3,
      [](ProcessGroup& group) {
        all_reduce(at::ones({4}), group);
        if (group.rank() == 1) {
          std::this_thread::sleep_for(kSoon * 2);
        } else {
          all_gather(at::ones({4}), group, 0, std::vector<int64_t>{4, 4, 4});
        }
      },
      kSoon);
  expect_has(
      text,
      "rank 1 left no record (killed, stopped, ended early, or its machine is gone) while ranks 0 and 2 waited in "
      "all_gather #2 of Float [4] at flight_test.cpp:");
  expect_has(fault_, "; 'tandem doctor " + (folder_ / "flight").string() + "' tells more");
}

TEST_P(Flight, ARankThatGoesOnElsewhereIsNamed) {
  const auto text = diagnosis(
      2,
      [](ProcessGroup& group) {
        const auto other = group.split(0);
        if (group.rank() == 1) {
          barrier(*other);
        } else {
          barrier(group);
        }
      },
      kSoon);
  expect_has(text, " never entered barrier #");
}

TEST_P(Flight, AMessageThatNeverComesIsNamed) {
  const auto text = diagnosis(
      2,
      [](ProcessGroup& group) {
        if (group.rank() == 1) {
          send(at::ones({2}), 0, group);
          barrier(group);
        } else {
          recv(1, group);
          recv(1, group);
        }
      },
      kSoon);
  expect_has(text, "recv #2 from rank 1 at flight_test.cpp:");
}

TEST_P(Flight, CheckedCallsNameBothSides) {
  auto with = options();
  with.check = true;
  const auto text = text_of([&] {
    run_ranks(
        3,
        [](ProcessGroup& group) {
          all_reduce(group.rank() == 1 ? at::ones({3, 2}) : at::ones({2, 3}), group);
        },
        with);
  });
  expect_has(text, "rank 0 calls all_reduce of Float [2, 3] (sum) at flight_test.cpp:");
  expect_has(text, "rank 1 calls all_reduce of Float [3, 2] (sum) at flight_test.cpp:");
  expect_has(text, ": another size");
}

TEST_P(Flight, CheckedCallsWantOneMindOnGradients) {
  auto with = options();
  with.check = true;
  const auto text = text_of([&] {
    run_ranks(
        2, [](ProcessGroup& group) { all_reduce(at::ones({2}).set_requires_grad(group.rank() == 1), group); }, with);
  });
  expect_has(text, "one needs a gradient, the other does not");
}

TEST_P(Flight, CheckedCallsCompareDimAndSizes) {
  auto with = options();
  with.check = true;
  const auto other_dim = text_of([&] {
    run_ranks(
        2,
        [](ProcessGroup& group) {
          reduce_scatter(at::ones({6, 6}), group, group.rank());
        },
        with);
  });
  expect_has(other_dim, "rank 0 calls reduce_scatter of Float [6, 6] along dim 0, sizes 3, 3 at flight_test.cpp:");
  expect_has(other_dim, ": another dim or other sizes of the parts");
  const auto other_sizes = text_of([&] {
    run_ranks(
        2,
        [](ProcessGroup& group) {
          const std::vector<int64_t> sizes =
              group.rank() == 0 ? std::vector<int64_t>{2, 1} : std::vector<int64_t>{1, 1};
          all_gather(at::ones({sizes[group.rank()]}), group, 0, sizes);
        },
        with);
  });
  expect_has(other_sizes, "rank 1 calls all_gather of Float [1] along dim 0, sizes 1, 1 at flight_test.cpp:");
}

TEST_P(Flight, CheckedCallsThatAgreeGoThrough) {
  auto with = options();
  with.check = true;
  run_ranks(
      3,
      [](ProcessGroup& group) {
        const auto gathered = all_gather(at::ones({group.rank()}), group);
        EXPECT_EQ(gathered.numel(), 3);
        EXPECT_EQ(scatter(at::ones({5}), 2, group).numel(), group.rank() < 2 ? 2 : 1);
        const auto halves = group.split(group.rank() == 0);
        all_reduce(at::ones({2}), *halves, Reduce::max);
      },
      with);
}

flight::CallInfo barrier_call() {
  flight::CallInfo call;
  call.operation = "barrier";
  call.type = "Float";
  call.shape = {4};
  return call;
}

TEST(FlightRecords, ThoseOfARunBeforeDoNotCount) {
  const test::TemporaryFolder folder;
  const auto write = [&](flight::FlightRecorder& recorder, const std::string& fault) {
    recorder.set_folder(folder.path());
    recorder.end(recorder.begin("world", {0, 1, 2}, 1, barrier_call()), flight::FlightRecorder::State::failed);
    EXPECT_EQ(recorder.write(fault), folder.path());
  };
  flight::FlightRecorder before(1, 3);
  write(before, "of a run before");
  flight::FlightRecorder zero(0, 3), two(2, 3);
  write(zero, "timed out");
  write(two, "timed out");
  const auto text = flight::diagnose_flight(folder.path());
  expect_has(text,
             "rank 1 left no record (killed, stopped, ended early, or its machine is gone) while ranks 0 and 2 "
             "waited in barrier #1 of Float [4] at ");
}

/// Records of three ranks in which one call failed; `change`: what is different in rank 1's, or where it is in time.
std::string diagnosis_where(const std::function<void(nlohmann::json& record)>& change) {
  const test::TemporaryFolder folder;
  flight::FlightRecorder recorders[] = {{0, 3}, {1, 3}, {2, 3}};
  for (const int rank : {0, 1, 2}) {
    auto& recorder = recorders[rank];
    recorder.end(recorder.begin("world", {0, 1, 2}, 1, barrier_call()), flight::FlightRecorder::State::failed);
    auto record = nlohmann::json::parse(recorder.to_json("timed out"));
    record["seconds"] = record["seconds"].get<double>() + 2;
    if (rank == 1) change(record);
    test::spill(folder / ("flight_rank_000" + std::to_string(rank) + ".json"), record.dump());
  }
  return flight::diagnose_flight(folder.path());
}

void move(nlohmann::json& time, double seconds) { time = time.get<double>() + seconds; }

TEST(FlightRecords, ARankThatStoodStillIsNamed) {
  const auto text = diagnosis_where([](nlohmann::json& record) { move(record["seconds"], 60); });
  expect_has(text,
             "rank 1 stood still (suspended, or its machine was): ranks 0 and 2 gave up in barrier #1 of Float "
             "[4] at ");
  expect_has(text, ", which all ranks had entered, and rank 1 noticed it 60.0 s later");
}

TEST(FlightRecords, ARankThatCameTooLateIsNamed) {
  const auto text = diagnosis_where([](nlohmann::json& record) {
    move(record["calls"][0]["seconds"], 10);
    move(record["seconds"], 8);
  });
  expect_has(text, "rank 1 came too late: ranks 0 and 2 gave up in barrier #1 of Float [4] at ");
  expect_has(text, " after 2.0 s, and rank 1 entered it 8.0 s later");
}

TEST(FlightRecords, FaultsAreTold) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(
      text_of<DataError>([&] { flight::diagnose_flight(folder.path()); }),
      "folder '" + folder.path().string() +
          "' holds no flight records, wanted flight_rank_*.json: a run writes them into its folder's flight/ when "
          "communication fails");
  test::spill(folder / "flight_rank_0000.json", "{}");
  EXPECT_EQ(text_of<DataError>([&] { flight::diagnose_flight(folder.path()); }),
            "flight record '" + (folder / "flight_rank_0000.json").string() +
                "' is not one of tandem's, wanted a flight_rank_*.json: remove it");
  EXPECT_NE(text_of<IoError>([&] { flight::diagnose_flight(folder / "none"); }).find("cannot be read"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::comm
