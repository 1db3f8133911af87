#include "tandem/parallel/updating_servers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

constexpr int64_t kFloats = 7 * 5 + 11, kDoubles = 3;

Tensor normal(at::IntArrayRef sizes, uint64_t stream, at::ScalarType type) {
  const auto numbers = at::empty(sizes, type);
  fill_normal_(numbers, 1.0, 11, stream);
  return numbers;
}

/// Two types, one tensor not contiguous, one frozen.
std::vector<Parameter> parameters_of() {
  return {Parameter::replicated("turned", normal({5, 7}, 1, at::kFloat).t().requires_grad_()),
          Parameter::replicated("bias", normal({11}, 2, at::kFloat).requires_grad_()),
          Parameter::replicated("frozen", normal({4}, 4, at::kFloat)),
          Parameter::replicated("scale", normal({3}, 3, at::kDouble).requires_grad_())};
}

/// Not linear in the parameters, so that other weights have other gradients.
Tensor loss_of(const std::vector<Parameter>& parameters, int rank, double factor) {
  auto loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& tensor = parameters[i].tensor;
    const auto own = normal(tensor.sizes(), 10 + 4 * rank + i, tensor.scalar_type());
    loss = loss + (tensor.square() * own).sum() * factor;
  }
  return loss;
}

/// Steps of plain gradient descent, of two micro-batches each; a rank from `workers` on has none.
void descend(GradientSync& sync, const std::vector<Parameter>& parameters, int rank, int workers) {
  const auto held = sync.held(parameters);
  for (int step = 0; step < 3; ++step) {
    for (int64_t i = 0; i < 2; ++i) {
      const MicroBatch micro{i, 2, rank < workers ? rank + 1 : 0, workers * (workers + 1) / 2};
      sync.before_forward(micro);
      const auto loss = loss_of(parameters, rank, rank < workers ? 0.01 * static_cast<double>(i + 1) : 0.0);
      sync.before_backward(loss, micro);
      loss.backward();
      sync.after_backward(micro);
    }
    const at::NoGradGuard no_grad;
    for (const auto& parameter : held) {
      if (!parameter.tensor.requires_grad()) continue;
      parameter.tensor.sub_(parameter.tensor.grad(), 0.5);
      parameter.tensor.mutable_grad().reset();
    }
    sync.after_step();
  }
}

std::vector<Tensor> values_of(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> values;
  for (const auto& parameter : parameters) values.push_back(parameter.tensor.detach().clone());
  return values;
}

struct Arrangement {
  int workers = 1, apart = 0;
  int ranks() const { return workers + apart; }
};

const std::vector<Arrangement> kArrangements = {{1, 0}, {2, 0}, {3, 0}, {5, 0}, {1, 1}, {2, 1}, {3, 1}, {3, 2}, {2, 4}};

/// The weights of the workers where they step, which is tested elsewhere.
std::vector<Tensor> stepped_by_workers(int workers, const Aggregate& aggregate) {
  std::vector<Tensor> values;
  comm::run_ranks(workers, [&](comm::ProcessGroup& group) {
    const auto parameters = parameters_of();
    ParameterServer servers(parameters, {}, group, {&aggregate});
    descend(servers, parameters, group.rank(), workers);
    if (group.rank() == 0) values = values_of(parameters);
  });
  return values;
}

TEST(UpdatingServers, HaveTheBitsOfWorkersThatUpdate) {
  for (const auto& aggregate : aggregates()) {
    for (const auto& of : kArrangements) {
      if (of.workers < aggregate.least_ranks) continue;
      SCOPED_TRACE(std::string(aggregate.name) + ' ' + std::to_string(of.workers) + '+' + std::to_string(of.apart));
      const auto expected = stepped_by_workers(of.workers, aggregate);
      comm::run_ranks(of.ranks(), [&](comm::ProcessGroup& group) {
        const auto parameters = parameters_of();
        for (const auto& parameter : parameters) {  // rank 0's go to all
          if (group.rank() > 0) parameter.tensor.detach().zero_();
        }
        UpdatingServers servers(parameters, {}, group, {&aggregate, of.apart, true});
        descend(servers, parameters, group.rank(), of.workers);
        if (group.rank() >= of.workers) return;
        for (size_t i = 0; i < parameters.size(); ++i) {
          EXPECT_TRUE(parameters[i].tensor.equal(expected[i])) << parameters[i].name;
        }
      });
    }
  }
}

/// What the servers are given goes to the workers before their next step.
TEST(UpdatingServers, TrainOnFromWhatIsLoaded) {
  for (const auto& of : kArrangements) {
    if (of.ranks() == 1) continue;
    comm::run_ranks(of.ranks(), [&](comm::ProcessGroup& group) {
      const auto parameters = parameters_of();
      UpdatingServers servers(parameters, {}, group, {.servers = of.apart, .servers_update = true});
      descend(servers, parameters, group.rank(), of.workers);
      for (const auto& part : servers.held(parameters)) {
        if (part.tensor.requires_grad()) part.tensor.detach().fill_(3);
      }
      servers.values_replaced();
      servers.unify();
      for (const auto& parameter : parameters) {
        if (group.rank() >= of.workers || !parameter.tensor.requires_grad()) continue;
        EXPECT_TRUE(parameter.tensor.eq(3).all().item<bool>()) << parameter.name;
      }
    });
  }
}

/// The servers hold each number once, the workers none; each number counts once.
TEST(UpdatingServers, OnlyServersHoldWhatIsUpdated) {
  for (const auto& of : kArrangements) {
    if (of.ranks() == 1) continue;
    comm::run_ranks(of.ranks(), [&](comm::ProcessGroup& group) {
      const auto parameters = parameters_of();
      UpdatingServers servers(parameters, {}, group, {.servers = of.apart, .servers_update = true});
      int64_t own = 0, counted = 0;
      for (const auto& part : servers.held(parameters)) {
        if (part.name == "frozen") continue;
        own += part.tensor.numel();
        if (part.placement.counts_on(group.rank())) counted += part.tensor.numel();
      }
      const bool serves = of.apart == 0 || group.rank() >= of.workers;
      EXPECT_TRUE(serves || own == 0) << own;
      EXPECT_EQ(comm::reduce_number(own, comm::Reduce::sum, group), kFloats + kDoubles);
      EXPECT_EQ(comm::reduce_number(counted, comm::Reduce::sum, group), kFloats + kDoubles);
    });
  }
}

int64_t padded(int64_t numbers, int64_t servers) { return (numbers + servers - 1) / servers * servers; }

/// 2 (N - 1) S over N ranks that all serve, 2 W S over W workers with servers apart; S with its padding.
TEST(UpdatingServers, SendAndNeedWhatTheySay) {
  memory::install_meter();
  for (const auto& aggregate : aggregates()) {
    for (const auto& of : kArrangements) {
      if (of.workers < aggregate.least_ranks || of.ranks() == 1) continue;
      SCOPED_TRACE(std::string(aggregate.name) + ' ' + std::to_string(of.workers) + '+' + std::to_string(of.apart));
      comm::run_ranks(of.ranks(), [&](comm::ProcessGroup& group) {
        const RankScope scope(group.rank());
        const auto parameters = parameters_of();
        UpdatingServers servers(parameters, {}, group, {&aggregate, of.apart, true});
        const auto predicted = servers.memory().exchange + servers.memory().beside;
        servers.before_forward({});
        const auto loss = loss_of(parameters, group.rank(), group.rank() < of.workers ? 1 : 0);
        servers.before_backward(loss);
        loss.backward();
        comm::barrier(group);
        group.meter().reset();
        const auto before = memory::account(group.rank());
        memory::reset_peak(group.rank());
        servers.after_backward({});
        EXPECT_EQ(memory::account(group.rank()).peak_bytes() - before.live_bytes(), predicted);
        for (const auto& part : servers.held(parameters)) part.tensor.mutable_grad().reset();
        servers.after_step();
        EXPECT_LE(memory::account(group.rank()).peak_bytes() - before.live_bytes(), predicted);
        int64_t own = 0;
        for (const auto& [operation, sums] : group.meter().counts()) own += sums.bytes;
        const int64_t count = of.apart == 0 ? of.workers : of.apart;
        const int64_t state = 4 * padded(kFloats, count) + 8 * padded(kDoubles, count);
        EXPECT_EQ(comm::reduce_number(own, comm::Reduce::sum, group),
                  2 * (of.apart == 0 ? of.workers - 1 : of.workers) * state);
      });
    }
  }
}

TEST(UpdatingServers, RefuseTooFewRanksAndAGradientThatHasLeft) {
  const auto group = comm::make_single_group();
  EXPECT_EQ(test::text_of<SettingsError>([&] {
              UpdatingServers(parameters_of(), {}, *group, {&aggregate_of("trimmed-mean"), 0, true});
            }),
            "aggregate is trimmed-mean with 1 ranks, wanted 3 or more");
  comm::run_ranks(2, [](comm::ProcessGroup& ranks) {
    const auto weight = at::ones({4}, at::kDouble).requires_grad_();
    UpdatingServers servers({Parameter::replicated("weight", weight)}, {}, ranks, {.servers_update = true});
    servers.before_forward({});
    weight.mutable_grad() = at::ones({4}, at::kDouble);
    EXPECT_EQ(test::text_of<c10::Error>([&] { servers.after_backward({}); }),
              "parameter server: the gradient of weight has left the memory that it was given, wanted backward without "
              "create_graph and without a change of .grad");
  });
}

}  // namespace
}  // namespace tandem::parallel
