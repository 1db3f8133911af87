#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/world.h"
#include "tests/device/test_device.h"

// Thread-ranks that share one device: each operator gives what it gives for CPU tensors, without waiting for the
// device, and however late the device does its work.
namespace tandem::comm {
namespace {

using test::DelayedStreams;
using test::Delays;
using test::Fault;
using Call = std::function<Tensor(const Tensor& x, ProcessGroup& group)>;

DelayedStreams& streams() { return DelayedStreams::get(); }

WorldOptions on_device() {
  test::install_test_device();
  return {.timeout = std::chrono::seconds(20), .device = c10::Device(at::kPrivateUse1, 0)};
}

/// Rank r has r + 1 rows.
Tensor rows_of(const ProcessGroup& group) {
  return at::arange(1, 2 * group.rank() + 3, at::kFloat).view({-1, 2}).div_(3);
}

class SharedDevice : public testing::TestWithParam<Delays> {
 protected:
  void SetUp() override {
    test::install_test_device();
    streams().choose(GetParam());
  }
  void TearDown() override { streams().choose(Delays::none); }

  /// The inputs are overwritten as soon as the host may do so.
  static void expect_same(const Call& call) {
    for (const int ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(ranks);
      run_ranks(
          ranks, [&](ProcessGroup& group) { expect_same_on(call, group); }, on_device());
    }
    EXPECT_EQ(streams().take_findings(), std::vector<std::string>());
  }

  static void expect_same_on(const Call& call, ProcessGroup& group) {
    const auto here = call(rows_of(group), group);
    auto x = rows_of(group).to(at::kPrivateUse1);
    x = x * 1;  // the device's work
    const auto waits = DelayedStreams::num_waits_here();
    const auto there = call(x, group).clone();  // of one rank it is x itself
    x.fill_(-1);
    barrier(group);
    EXPECT_EQ(DelayedStreams::num_waits_here(), waits);
    EXPECT_TRUE(there.cpu().equal(here)) << "rank " << group.rank();
  }
};

TEST_P(SharedDevice, TensorsOfOneShape) {
  for (const auto op : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min}) {
    expect_same([&](const Tensor& x, ProcessGroup& group) { return all_reduce(x[0], group, op); });
  }
  expect_same([](const Tensor& x, ProcessGroup& group) { return broadcast(x[0], group.size() - 1, group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return reduce_sum(x[0], group.size() - 1, group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return reduce_scatter(x[0].repeat({7, 1}), group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return all_to_all(x[0].repeat({7, 1}), group); });
}

TEST_P(SharedDevice, HalfTypesAreSummedInFloat) {
  expect_same([](const Tensor& x, ProcessGroup& group) { return all_reduce(x[0].to(at::kBFloat16), group); });
  expect_same([](const Tensor& x, ProcessGroup& group) {
    return reduce_scatter(x[0].to(at::kHalf).repeat({7, 1}), group);
  });
}

TEST_P(SharedDevice, TensorsOfSeveralShapes) {
  expect_same([](const Tensor& x, ProcessGroup& group) { return all_gather(x, group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return gather(x, 0, group); });
  expect_same([](const Tensor& x, ProcessGroup& group) { return scatter(x, 0, group); });
}

TEST_P(SharedDevice, CallsThatEndLaterRunOnAStreamOfTheirOwn) {
  expect_same([](const Tensor& x, ProcessGroup& group) {
    auto sum = all_reduce_async(x[0], group);
    auto all = all_gather_async(x, group);
    const auto own = x.sum(0);  // meanwhile
    return own + sum.wait() + all.wait().sum(0);
  });
  expect_same([](const Tensor& x, ProcessGroup& group) {
    const auto own = x[0].clone();
    all_reduce_(own, group);
    return own;
  });
}

TEST_P(SharedDevice, AMessageIsHandedOver) {
  expect_same([](const Tensor& x, ProcessGroup& group) {
    const int size = group.size(), to = (group.rank() + 1) % size, from = (group.rank() + size - 1) % size;
    if (size == 1) return x;
    send(x * 2, to, group);
    send(x, to, group);  // a copy
    return recv(from, group) + recv(from, group);
  });
}

/// libtorch has one thread of autograd for a device: there the first rank would wait for the second for ever.
TEST_P(SharedDevice, CollectivesInBackward) {
  const auto gradient = [](const Tensor& x, ProcessGroup& group) {
    const auto own = x.detach().requires_grad_();
    const auto all = all_gather(own * own, group);
    const auto sum = all_reduce(all.cumsum(0)[group.rank()] * own[0], group);
    return torch::autograd::grad({(sum * sum).sum()}, {own})[0];
  };
  expect_same(gradient);
}

constexpr int kFaultRanks = 3;

/// Makes a call on three ranks, whose inputs are overwritten as soon as the host may do so, and leaves out one of the
/// waits for an event that a rank's streams make. `first`: the rank that makes its stream work first. Returns whether
/// somebody reads other numbers, or the devices notice something.
bool is_wrong_without(int faulty, int64_t event, int first, const Call& call, int64_t* events = nullptr) {
  const auto options = on_device();
  streams().choose(Delays::longest);
  std::atomic<bool> is_wrong{false};
  const auto body = [&](ProcessGroup& group) {
    const auto numbers = at::arange(kFaultRanks * 4, at::kFloat) + group.rank();
    const auto expected = call(numbers, group);
    const auto x = numbers.to(at::kPrivateUse1) * 1;
    if (group.rank() == faulty) streams().plant_on(faulty, Fault::missing_wait, event);
    const auto result = call(x, group);
    if (group.rank() == faulty) {
      if (events != nullptr) *events = streams().num_events_on(faulty);
      streams().plant_on(faulty, Fault::none, 0);
    }
    x.fill_(-1);
    for (int turn = 0; turn < kFaultRanks; ++turn) {
      if ((first + turn) % kFaultRanks == group.rank()) {
        if (!result.cpu().equal(expected)) is_wrong = true;
        x.cpu();
      }
      barrier(group);
    }
  };
  run_ranks(kFaultRanks, body, options);
  return !streams().take_findings().empty() || is_wrong;
}

/// Of the wait for an event: whose work is not done yet (its numbers would be read too early), or who reads what is
/// overwritten next.
void expect_each_wait_is_needed(const Call& call, int64_t wanted_events) {
  int64_t events = 0;
  EXPECT_FALSE(is_wrong_without(1, /*event=*/1000, 0, call, &events));
  EXPECT_EQ(events, wanted_events);
  for (int rank = 0; rank < kFaultRanks; ++rank) {
    for (int64_t event = 0; event < events; ++event) {
      bool is_found = false;
      for (int first = 0; first < kFaultRanks; ++first) is_found |= is_wrong_without(rank, event, first, call);
      EXPECT_TRUE(is_found) << "event " << event << " of rank " << rank;
    }
  }
  streams().choose(Delays::none);
}

/// Two for each other rank, before and after its work.
constexpr int64_t kEventsOfACall = 2 * (kFaultRanks - 1);

TEST(SharedDeviceFaults, EachMissingWaitIsFound) {
  const auto sum = [](const Tensor& x, ProcessGroup& group) { return all_reduce(x, group); };
  const auto all = [](const Tensor& x, ProcessGroup& group) { return all_gather(x, group); };
  const auto part = [](const Tensor& x, ProcessGroup& group) { return reduce_scatter(x, group); };
  const auto each = [](const Tensor& x, ProcessGroup& group) { return all_to_all(x, group); };
  for (const Call& call : {Call(sum), Call(all), Call(part), Call(each)}) {
    expect_each_wait_is_needed(call, kEventsOfACall);
  }
}

/// Their stream waits for the caller's, and the other way round.
TEST(SharedDeviceFaults, EachMissingWaitOfACallThatEndsLaterIsFound) {
  const auto sum = [](const Tensor& x, ProcessGroup& group) { return all_reduce_async(x, group).wait(); };
  const auto all = [](const Tensor& x, ProcessGroup& group) { return all_gather_async(x, group).wait(); };
  const auto part = [](const Tensor& x, ProcessGroup& group) { return reduce_scatter_async(x, group).wait(); };
  for (const Call& call : {Call(sum), Call(all), Call(part)}) {
    expect_each_wait_is_needed(call, kEventsOfACall + 2);
  }
}

/// The reader waits for what the sender's stream has to do.
TEST(SharedDeviceFaults, EachMissingWaitOfAMessageIsFound) {
  const auto pass_on = [](const Tensor& x, ProcessGroup& group) {
    send(x * 2, (group.rank() + 1) % kFaultRanks, group);
    return recv((group.rank() + kFaultRanks - 1) % kFaultRanks, group);
  };
  expect_each_wait_is_needed(pass_on, 1);
}

TEST(SharedDeviceFaults, RanksWithOneThreadOfAutogradWouldWaitForEver) {
  on_device();
  const WorldOptions options = {.timeout = std::chrono::milliseconds(300)};  // without a device: libtorch's own engine
  const auto body = [](ProcessGroup& group) {
    const auto x = at::ones({4}, at::kPrivateUse1).requires_grad_();
    all_reduce(x * 2, group).sum().backward();
  };
  EXPECT_THROW(run_ranks(2, body, options), c10::DistBackendError);
}

void expect_error(const std::function<void(ProcessGroup&)>& body, const std::string& text) {
  try {
    run_ranks(2, body, on_device());
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(SharedDeviceFaults, CallsThatDiffer) {
  const auto operators = [](ProcessGroup& group) {
    const auto x = at::ones({4}, at::kPrivateUse1);
    group.rank() == 0 ? all_reduce(x, group) : all_gather(x, group, 0, std::vector<int64_t>{4, 4});
  };
  expect_error(operators, "rank 0 calls all_reduce of Float [4] on another device (sum)");
  const auto devices = [](ProcessGroup& group) {
    all_reduce(at::ones({4}, at::device(group.rank() == 0 ? at::kPrivateUse1 : at::kCPU)), group);
  };
  expect_error(devices, "rank 1 calls all_reduce of Float [4] (sum)");
}

std::string name_of_delays(const testing::TestParamInfo<Delays>& info) {
  constexpr const char* kNames[] = {"none", "longest", "random"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Delays, SharedDevice, testing::Values(Delays::none, Delays::longest, Delays::random),
                         name_of_delays);

}  // namespace
}  // namespace tandem::comm
