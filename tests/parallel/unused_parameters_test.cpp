#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/world.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tandem/parallel/ordered_data_parallel.h"
#include "tests/support/text_of.h"

// Steps that leave parameters out.
namespace tandem::parallel {
namespace {

using test::text_of;
using Indices = std::vector<int>;

struct Four {
  std::vector<Tensor> weights;
  Four() {
    for (int i = 0; i < 4; ++i) weights.push_back(at::full({3}, i + 1.0, at::kDouble).requires_grad_());
  }
  static std::vector<std::string> names() { return {"a.weight", "b.weight", "c.weight", "d.weight"}; }
  Tensor loss(const Indices& used, double factor) const {
    auto sum = at::zeros({}, at::kDouble);
    for (const int i : used) sum = sum + (weights[i] * weights[i]).sum() * (factor / 2);
    return sum;
  }
  void zero_grad() const {
    for (const auto& weight : weights) weight.mutable_grad().reset();
  }
};

DistributedDataParallelOptions options_of(bool find, bool is_static, bool is_view) {
  return {.bucket_bytes = 48,  // two weights
          .first_bucket_bytes = 48,
          .gradient_as_bucket_view = is_view,
          .find_unused_parameters = find,
          .static_graph = is_static};
}

void run(const Four& model, DistributedDataParallel& replicas, const Indices& used, double factor,
         const MicroBatch& micro = {}) {
  replicas.before_forward(micro);
  const auto loss = model.loss(used, factor);
  replicas.before_backward(loss, micro);
  if (loss.requires_grad()) loss.backward();
}

/// The gradient of weight i is i + 1 times the sum of the factors, rank + 1, of the ranks that use it.
template <class Used>
void expect_sums(const Four& model, int ranks, const Used& used) {
  for (int i = 0; i < 4; ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto own = used(rank);
      if (std::ranges::find(own, i) != own.end()) sum += rank + 1;
    }
    const auto& gradient = model.weights[i].grad();
    ASSERT_EQ(gradient.defined(), sum > 0) << "weight " << i << " of " << ranks << " ranks";
    if (sum == 0) continue;
    EXPECT_TRUE(gradient.equal(at::full({3}, sum * (i + 1), at::kDouble))) << gradient;
  }
}

TEST(UnusedParameters, AddZerosAndAreUndefinedWhereNoRankUsesThem) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto transport : {comm::Transport::memory, comm::Transport::segments, comm::Transport::sockets}) {
      for (const bool is_view : {true, false}) {
        comm::run_ranks(ranks,
                        [&](comm::ProcessGroup& group) {
                          const Four model;
                          DistributedDataParallel replicas(model.weights, {}, Four::names(), group,
                                                           options_of(true, false, is_view));
                          for (int step = 0; step < 5; ++step) {
                            const auto used = [&](int rank) -> Indices {
                              if (step == 0) return {0, 1, 2, 3};
                              if (step == 1) return rank == 0 ? Indices{0, 2} : Indices{2};
                              if (step == 2) return rank == 1 ? Indices{} : Indices{1, 3};  // a rank without a gradient
                              return rank % 2 == 0 ? Indices{3} : Indices{0};
                            };
                            run(model, replicas, used(group.rank()), group.rank() + 1);
                            expect_sums(model, ranks, used);
                            model.zero_grad();
                          }
                        },
                        {.timeout = std::chrono::seconds(20), .transport = transport});
      }
    }
  }
}

TEST(UnusedParameters, OfALaterMicroBatchKeepTheGradientsOfTheFirst) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool is_view : {true, false}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const Four model;
        DistributedDataParallel replicas(model.weights, {}, Four::names(), group, options_of(true, false, is_view));
        for (int step = 0; step < 3; ++step) {
          run(model, replicas, {0, 1}, group.rank() + 1, {0, 2});
          run(model, replicas, {2}, group.rank() + 1, {1, 2});
          expect_sums(model, ranks, [](int) { return Indices{0, 1, 2}; });
          model.zero_grad();
        }
      });
    }
  }
}

/// Two micro-batches a rank; the sum of 4 shards' gradients does not depend on the ranks.
TEST(UnusedParameters, OfOrderedShardsAreUndefinedWhereNoShardUsesThem) {
  for (const int ranks : {1, 2, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const Four model;
      std::vector<Parameter> parameters;
      for (size_t i = 0; i < 4; ++i) parameters.push_back(Parameter::replicated(Four::names()[i], model.weights[i]));
      OrderedDataParallel replicas(parameters, {}, group, /*allows_unused=*/true);
      for (int step = 0; step < 3; ++step) {
        const auto used = [&](int shard) { return step == 1 ? Indices{0, 2} : Indices{shard, 3 - shard}; };
        for (int i = 0; i < 4 / ranks; ++i) {
          const MicroBatch micro = {.index = i, .count = 4 / ranks};
          replicas.before_forward(micro);
          const auto shard = i * ranks + group.rank();
          const auto loss = model.loss(used(shard), shard + 1);
          replicas.before_backward(loss, micro);
          loss.backward();
          replicas.after_backward(micro);
        }
        expect_sums(model, 4, used);
      }
    });
  }
}

TEST(UnusedParameters, AreLookedForWithAByteEach) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const Four model;
    DistributedDataParallel replicas(model.weights, {}, Four::names(), group, options_of(true, false, true));
    run(model, replicas, {0, 1, 2, 3}, 1);
    model.zero_grad();
    group.meter().reset();
    run(model, replicas, {0}, 1);
    EXPECT_EQ(group.meter().counts().at("all_reduce").calls, 3);  // two buckets
    EXPECT_EQ(group.meter().counts().at("all_reduce").bytes, 4 * 3 * 8 + 4);
  });
}

TEST(UnusedParameters, OfAStaticGraphAreThoseOfTheFirstStep) {
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const Four model;
      DistributedDataParallel replicas(model.weights, {}, Four::names(), group, options_of(false, true, true));
      const auto used = [](int rank) { return rank == 0 ? Indices{0, 1} : Indices{1, 3}; };
      for (int step = 0; step < 4; ++step) {
        group.meter().reset();
        run(model, replicas, used(group.rank()), group.rank() + 1);
        expect_sums(model, ranks, used);
        model.zero_grad();
        const auto counts = group.meter().counts();
        EXPECT_EQ(ranks == 1 ? 0 : counts.at("all_reduce").calls, ranks == 1 ? 0 : step == 0 ? 3 : 2) << step;
      }
    });
  }
}

TEST(UnusedParameters, OfAStaticGraphAreThoseOfAllItsMicroBatches) {
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const Four model;
      DistributedDataParallel replicas(model.weights, {}, Four::names(), group, options_of(false, true, true));
      for (int step = 0; step < 4; ++step) {
        run(model, replicas, {0, 1}, group.rank() + 1, {0, 2});
        run(model, replicas, {2}, group.rank() + 1, {1, 2});
        expect_sums(model, ranks, [](int) { return Indices{0, 1, 2}; });
        model.zero_grad();
      }
    });
  }
}

TEST(UnusedParameters, OfAStaticGraphMayNotBeUsedLater) {
  for (const int ranks : {1, 3}) {
    const auto where = ranks == 1 ? "" : " on rank 0 of 3";
    const auto text = text_of<c10::ValueError>([&] {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const Four model;
        DistributedDataParallel replicas(model.weights, {}, Four::names(), group, options_of(false, true, true));
        run(model, replicas, {0, 1, 3}, 1);
        model.zero_grad();
        run(model, replicas, group.rank() == 0 ? Indices{0, 1, 2, 3} : Indices{0, 1, 3}, 1);
      });
    });
    EXPECT_NE(text.find(std::string("parameter c.weight of the model has a gradient") + where +
                        ", wanted none, as in the first step: leave static_graph out"),
              std::string::npos)
        << text;
  }
}

TEST(UnusedParameters, OfAStaticGraphMustBeUsedAgain) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const Four model;
    DistributedDataParallel replicas(model.weights, {}, Four::names(), group, options_of(false, true, true));
    run(model, replicas, {0, 1, 3}, 1);
    model.zero_grad();
    const auto text = text_of<c10::ValueError>([&] { run(model, replicas, {0, 3}, 1); });
    EXPECT_TRUE(text.starts_with("parameter b.weight of the model has no gradient after backward on any of 2 ranks"))
        << text;
  });
}

}  // namespace
}  // namespace tandem::parallel
