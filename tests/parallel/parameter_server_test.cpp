#include "tandem/parallel/parameter_server.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor normal(at::IntArrayRef sizes, uint64_t stream, at::ScalarType type = at::kDouble) {
  const auto numbers = at::empty(sizes, type);
  fill_normal_(numbers, 1.0, 11, stream);
  return numbers;
}

/// Two tensors of two types, one of them not contiguous.
std::vector<Parameter> parameters_of() {
  const auto turned = normal({5, 7}, 1, at::kFloat).t().requires_grad_();
  return {Parameter::replicated("turned", turned),
          Parameter::replicated("bias", normal({11}, 2, at::kFloat).requires_grad_()),
          Parameter::replicated("scale", normal({3}, 3).requires_grad_())};
}

/// The gradient of a parameter is `factor` times a tensor of the rank's own.
Tensor loss_of(const std::vector<Parameter>& parameters, int rank, double factor) {
  auto loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& tensor = parameters[i].tensor;
    loss = loss + (tensor * normal(tensor.sizes(), 10 + 3 * rank + i, tensor.scalar_type())).sum() * factor;
  }
  return loss;
}

void run_step(GradientSync& sync, const std::vector<Parameter>& parameters, int rank, const MicroBatch& told = {}) {
  for (int64_t i = 0; i < 2; ++i) {
    const MicroBatch micro{i, 2, told.own_samples, told.samples};
    sync.before_forward(micro);
    const auto loss = loss_of(parameters, rank, i + 1);
    sync.before_backward(loss, micro);
    loss.backward();
    sync.after_backward(micro);
  }
}

std::vector<Tensor> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.tensor.grad().clone());
  return gradients;
}

TEST(ParameterServer, TheSumIsThatOfDataParallelBitByBit) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const auto with_servers = parameters_of(), with_buckets = parameters_of();
      std::vector<Tensor> tensors;
      std::vector<std::string> names;
      for (const auto& parameter : with_buckets) {
        tensors.push_back(parameter.tensor);
        names.push_back(parameter.name);
      }
      ParameterServer servers(with_servers, {}, group);
      DistributedDataParallel buckets(tensors, {}, names, group);
      for (int step = 0; step < 2; ++step) {
        run_step(servers, with_servers, group.rank());
        run_step(buckets, with_buckets, group.rank());
        const auto found = gradients_of(with_servers), expected = gradients_of(with_buckets);
        for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << names[i] << ' ' << ranks;
        for (const auto* list : {&with_servers, &with_buckets}) {
          for (const auto& parameter : *list) parameter.tensor.mutable_grad().reset();
        }
      }
    });
  }
}

/// Every rank's gradient of its own mean, by its definition.
Tensor gradients_of_means(const Parameter& parameter, size_t place, const std::vector<int64_t>& samples) {
  const auto all = std::accumulate(samples.begin(), samples.end(), int64_t{0});
  std::vector<Tensor> means;
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    const double factor = samples[rank] == 0 ? 0 : static_cast<double>(all) / static_cast<double>(samples[rank]);
    means.push_back(normal(parameter.tensor.sizes(), 10 + 3 * rank + place, parameter.tensor.scalar_type()) * 3 *
                    factor);
  }
  return at::stack(means);
}

TEST(ParameterServer, OtherAggregatesAreOfTheRanksOwnMeans) {
  const std::map<std::string_view, std::function<Tensor(const Tensor&)>> definitions = {
      {"mean", [](const Tensor& all) { return all.mean(0); }},
      {"trimmed-mean",
       [](const Tensor& all) { return (all.sum(0) - all.amax({0}) - all.amin({0})) / (all.size(0) - 2); }},
      {"median", [](const Tensor& all) { return at::quantile(all, 0.5, 0); }}};
  for (const std::vector<int64_t>& samples : {std::vector<int64_t>{4, 3, 3}, {3, 2, 2, 0}}) {
    comm::run_ranks(static_cast<int>(samples.size()), [&](comm::ProcessGroup& group) {
      for (const auto& [name, definition] : definitions) {
        const auto parameters = parameters_of();
        ParameterServer servers(parameters, {}, group, {&aggregate_of(name)});
        run_step(servers, parameters, group.rank(),
                 {.own_samples = samples[group.rank()],
                  .samples = std::accumulate(samples.begin(), samples.end(), int64_t{0})});
        for (size_t i = 0; i < parameters.size(); ++i) {
          const auto expected = definition(gradients_of_means(parameters[i], i, samples));
          EXPECT_TRUE(at::allclose(parameters[i].tensor.grad(), expected, 1e-5, 1e-5)) << name;
        }
      }
    });
  }
}

TEST(ParameterServer, AnAggregateOfYourOwnIsUsed) {
  const Aggregate first = {
      .name = "first", .doc = "rank 0's", .of = [](const Tensor& all) { return all[0]; }, .takes_means = false};
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const auto parameters = parameters_of();
    ParameterServer servers(parameters, {}, group, {&first});
    run_step(servers, parameters, group.rank());
    EXPECT_TRUE(at::allclose(parameters[2].tensor.grad(), normal({3}, 12) * 3, 0, 1e-14));
  });
}

TEST(ParameterServer, ANanOfOneRankIsOneOfAll) {
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    for (const auto& aggregate : aggregates()) {
      const auto weight = at::ones({4}, at::kDouble).requires_grad_();
      ParameterServer servers({Parameter::replicated("weight", weight)}, {}, group, {&aggregate});
      const auto loss = (weight * at::tensor({1.0, 2.0, group.rank() == 1 ? kNaN : 3.0, 4.0}, at::kDouble)).sum();
      servers.before_backward(loss);
      loss.backward();
      servers.after_backward({});
      EXPECT_TRUE(weight.grad().isnan().equal(at::tensor({0, 0, 1, 0}).to(at::kBool))) << aggregate.name;
    }
  });
}

TEST(ParameterServer, AMissingGradientIsNamedOnAllRanks) {
  for (const bool has_loss : {true, false}) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      const auto used = at::ones({2}, at::kDouble).requires_grad_(),
                 other = at::ones({3}, at::kDouble).requires_grad_();
      for (const auto& aggregate : aggregates()) {
        ParameterServer servers({Parameter::replicated("used", used), Parameter::replicated("other", other)}, {}, group,
                                {&aggregate});
        const auto text = test::text_of<c10::ValueError>([&] {
          const bool is_whole = group.rank() != 1;
          auto loss = is_whole ? used.sum() + other.sum() : used.sum();
          if (!is_whole && !has_loss) loss = loss.detach();
          servers.before_backward(loss);
          loss.backward();
          servers.after_backward({});
        });
        const std::string names =
            has_loss ? "parameter other of the model has" : "parameters used, other of the model have";
        EXPECT_EQ(text, names +
                            " no gradient after backward on rank 1 of 3, wanted one: use it in the loss of every "
                            "step, or freeze it with requires_grad_(false) before training");
        for (const auto& tensor : {used, other}) tensor.mutable_grad().reset();
      }
    });
  }
}

TEST(ParameterServer, TheFirstParameterMayBeEmpty) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const auto empty = at::zeros({0, 3}).requires_grad_(), other = at::ones({3}).requires_grad_();
    ParameterServer servers({Parameter::replicated("empty", empty), Parameter::replicated("other", other)}, {}, group);
    const auto loss = empty.sum() + other.sum();
    servers.before_backward(loss);
    loss.backward();
    servers.after_backward({});
    EXPECT_TRUE(other.grad().equal(at::full({3}, 2.0)));
  });
}

/// Bytes that the exchange of a backward takes above what lives before it.
int64_t backward_bytes(ParameterServer& servers, const Tensor& loss, comm::ProcessGroup& group) {
  servers.before_backward(loss);
  loss.backward();
  comm::barrier(group);
  const auto before = memory::account(group.rank());
  memory::reset_peak(group.rank());
  servers.after_backward({});
  return memory::account(group.rank()).peak_bytes() - before.live_bytes();
}

/// 2 (N - 1) S over all ranks, in backward; what memory() says is what the exchange needs.
TEST(ParameterServer, SendsAndNeedsWhatItSays) {
  memory::install_meter();
  constexpr int kRanks = 3;
  constexpr int64_t kBytes = 4 * (7 * 5 + 11) + 8 * 3;
  for (const auto& aggregate : aggregates()) {
    comm::run_ranks(kRanks, [&](comm::ProcessGroup& group) {
      const RankScope scope(group.rank());
      const auto parameters = parameters_of();
      ParameterServer servers(parameters, {}, group, {&aggregate});
      const auto predicted = servers.memory().exchange;
      const auto loss = loss_of(parameters, group.rank(), 1);
      group.meter().reset();
      EXPECT_EQ(backward_bytes(servers, loss, group), predicted) << aggregate.name;
      int64_t bytes = 0;
      for (const auto& [operation, sums] : group.meter().counts()) {
        bytes += sums.phases[static_cast<size_t>(Phase::backward)].bytes;
      }
      EXPECT_EQ(comm::reduce_number(bytes, comm::Reduce::sum, group), 2 * (kRanks - 1) * kBytes);
    });
  }
}

/// The gradients of ranks that train, by buckets.
std::vector<Tensor> sums_over(int workers) {
  std::vector<Tensor> sums;
  comm::run_ranks(workers, [&](comm::ProcessGroup& group) {
    const auto parameters = parameters_of();
    DistributedDataParallel buckets(tensors_of(parameters), {}, names_of(parameters), group);
    run_step(buckets, parameters, group.rank());
    if (group.rank() == 0) sums = gradients_of(parameters);
  });
  return sums;
}

/// A rank that only serves makes gradients of zeros, as of no samples.
void run_worker_or_server(ParameterServer& servers, const std::vector<Parameter>& parameters, bool is_worker,
                          int rank) {
  for (int64_t i = 0; i < 2; ++i) {
    const auto loss = is_worker ? loss_of(parameters, rank, i + 1) : loss_of(parameters, rank, 0);
    servers.before_backward(loss, {i, 2});
    loss.backward();
    servers.after_backward({i, 2});
  }
}

int64_t sent_in_backward(comm::ProcessGroup& group) {
  int64_t bytes = 0;
  for (const auto& [operation, sums] : group.meter().counts()) {
    bytes += sums.phases[static_cast<size_t>(Phase::backward)].bytes;
  }
  return comm::reduce_number(bytes, comm::Reduce::sum, group);
}

/// 2 W S over W workers; of several servers one tells the others of a number.
TEST(ParameterServer, ServersApartBringNothingAndSumAsTheWorkersAlone) {
  constexpr int64_t kBytes = 4 * (7 * 5 + 11) + 8 * 3;
  for (const int workers : {1, 2, 3, 4}) {
    const auto expected = sums_over(workers);
    for (const int apart : {1, 2, 4}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(apart) + " servers");
      comm::run_ranks(workers + apart, [&](comm::ProcessGroup& group) {
        const bool is_worker = group.rank() < workers;
        const auto parameters = parameters_of();
        ParameterServer servers(parameters, {}, group, {.servers = apart});
        for (int step = 0; step < 2; ++step) {
          group.meter().reset();
          run_worker_or_server(servers, parameters, is_worker, group.rank());
          const int64_t marks = apart == 1 ? 0 : (workers + apart - 1) * int64_t{sizeof(float)};
          EXPECT_EQ(sent_in_backward(group), 2 * workers * kBytes + marks);
          for (size_t i = 0; i < parameters.size(); ++i) {
            const auto& gradient = parameters[i].tensor.grad();
            EXPECT_EQ(gradient.defined(), is_worker) << parameters[i].name;
            EXPECT_TRUE(!is_worker || gradient.equal(expected[i])) << parameters[i].name;
            parameters[i].tensor.mutable_grad().reset();
          }
        }
      });
    }
  }
}

TEST(ParameterServer, AServerApartHoldsNoReplica) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    auto parameters = parameters_of();
    parameters[1].tensor.requires_grad_(false);
    ParameterServer servers(parameters, {}, group, {.servers = 1});
    const auto held = servers.held(parameters);
    const bool is_worker = group.rank() < 2;
    EXPECT_EQ(names_of(held),
              is_worker ? (std::vector<std::string>{"turned", "bias", "scale"}) : std::vector<std::string>{"bias"});
    for (const auto& parameter : held) {
      EXPECT_EQ(parameter.placement.counts_on(group.rank()), group.rank() == 0) << parameter.name;
      EXPECT_EQ(parameter.placement.is_everywhere(), parameter.name == "bias");
    }
  });
}

TEST(ParameterServer, AMissingGradientIsNamedOnServersApartToo) {
  for (const int apart : {1, 2, 3}) {
    comm::run_ranks(2 + apart, [&](comm::ProcessGroup& group) {
      const auto used = at::ones({2}, at::kDouble).requires_grad_(),
                 other = at::ones({3}, at::kDouble).requires_grad_();
      for (const auto& aggregate : aggregates()) {
        if (aggregate.least_ranks > 2) continue;
        ParameterServer servers({Parameter::replicated("used", used), Parameter::replicated("other", other)}, {}, group,
                                {&aggregate, apart});
        const auto text = test::text_of<c10::ValueError>([&] {
          const auto loss = group.rank() == 0 ? used.sum() + other.sum() : used.sum();
          servers.before_backward(loss);
          loss.backward();
          servers.after_backward({});
        });
        EXPECT_EQ(text, "parameter other of the model has no gradient after backward on rank 1 of " +
                            std::to_string(group.size()) +
                            ", wanted one: use it in the loss of every step, or freeze it with requires_grad_(false) "
                            "before training");
        for (const auto& tensor : {used, other}) tensor.mutable_grad().reset();
      }
    });
  }
}

TEST(ParameterServer, ServersApartNeedTheBytesThatTheySay) {
  memory::install_meter();
  for (const auto& aggregate : aggregates()) {
    comm::run_ranks(5, [&](comm::ProcessGroup& group) {
      const RankScope scope(group.rank());
      const auto parameters = parameters_of();
      ParameterServer servers(parameters, {}, group, {&aggregate, 2});
      const auto predicted = servers.memory().exchange;
      const auto loss = loss_of(parameters, group.rank(), group.rank() < 3 ? 1 : 0);
      EXPECT_EQ(backward_bytes(servers, loss, group), predicted) << aggregate.name;
    });
  }
}

TEST(ParameterServer, RefusesTooFewRanks) {
  const auto group = comm::make_single_group();
  EXPECT_EQ(test::text_of<SettingsError>(
                [&] { ParameterServer(parameters_of(), {}, *group, {&aggregate_of("trimmed-mean")}); }),
            "aggregate is trimmed-mean with 1 ranks, wanted 3 or more");
  EXPECT_EQ(test::text_of<SettingsError>([] { aggregate_of("best"); }),
            "ps.aggregate is 'best', wanted one of sum, mean, trimmed-mean, median");
  EXPECT_EQ(test::text_of<SettingsError>([&] { ParameterServer(parameters_of(), {}, *group, {.servers = 1}); }),
            "servers is 1 with 1 rank, wanted 0..0, so that a rank is left to train: add ranks, or set servers=0: each "
            "rank trains and serves");
}

}  // namespace
}  // namespace tandem::parallel
