#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "tandem/comm/world.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tests/support/text_of.h"

// A parameter that gets no gradient ends the step it happens in, on every rank, with its name.
namespace tandem::parallel {
namespace {

using test::text_of;

constexpr const char* kRemedy =
    ": use it in the loss of every step, set find_unused_parameters, or freeze it with requires_grad_(false) before "
    "training";

/// Three parameters, each in a bucket of its own.
struct Three {
  std::vector<Tensor> weights;
  Three() {
    for (int i = 0; i < 3; ++i) weights.push_back(at::full({4}, i + 1.0, at::kDouble).requires_grad_());
  }
  static std::vector<std::string> names() { return {"first.weight", "fc.weight", "last.bias"}; }
  static DistributedDataParallelOptions one_bucket_each() { return {.bucket_bytes = 8, .first_bucket_bytes = 8}; }
  Tensor loss(const std::vector<int>& used) const {
    auto sum = at::zeros({}, at::kDouble);
    for (const int i : used) sum = sum + (weights[i] * weights[i]).sum();
    return sum;
  }
};

/// What each rank is told when rank r's loss uses the parameters `used(r)`, in step `step` of those that use all.
template <class Used>
std::vector<std::string> texts(int world, comm::Transport transport, int step, const Used& used) {
  std::vector<std::string> texts(world);
  comm::run_ranks(world,
                  [&](comm::ProcessGroup& group) {
                    Three model;
                    DistributedDataParallel replicas(model.weights, {}, Three::names(), group,
                                                     Three::one_bucket_each());
                    const auto take_step = [&](const std::vector<int>& used_now) {
                      for (auto& weight : model.weights) weight.mutable_grad().reset();
                      const auto loss = model.loss(used_now);
                      replicas.before_backward(loss);
                      if (loss.requires_grad()) loss.backward();
                    };
                    for (int i = 0; i < step; ++i) take_step({0, 1, 2});
                    texts[group.rank()] = text_of<c10::ValueError>([&] { take_step(used(group.rank())); });
                  },
                  {.timeout = std::chrono::seconds(20), .transport = transport});
  return texts;
}

void expect_all(const std::vector<std::string>& texts, const std::string& wanted, comm::Transport transport) {
  for (const auto& text : texts) EXPECT_EQ(text, wanted) << texts.size() << " ranks, " << name_of(transport);
}

TEST(MissingGradient, EndsTheVeryStepOnEveryRank) {
  for (const int world : {1, 2, 3, 4}) {
    for (const auto transport : {comm::Transport::memory, comm::Transport::sockets}) {
      for (const int step : {0, 2}) {  // the buckets are rebuilt after the first
        const auto told = texts(world, transport, step, [](int) { return std::vector<int>{0, 2}; });
        const std::string where = world == 1 ? "" : " on any of " + std::to_string(world) + " ranks";
        expect_all(told,
                   "parameter fc.weight of the model has no gradient after backward" + where + ", wanted one" + kRemedy,
                   transport);
      }
    }
  }
}

TEST(MissingGradient, OfOneRankIsToldToAll) {
  for (const int world : {2, 3, 4}) {
    for (const auto transport : {comm::Transport::memory, comm::Transport::sockets}) {
      for (const int missing : {0, 1, 2}) {
        const auto told = texts(world, transport, 1, [&](int rank) {
          std::vector<int> used = {0, 1, 2};
          if (rank == 1) used.erase(used.begin() + missing);
          return used;
        });
        expect_all(told,
                   "parameter " + Three::names()[missing] +
                       " of the model has no gradient after backward on rank 1 of " + std::to_string(world) +
                       ", wanted one" + kRemedy,
                   transport);
      }
    }
  }
}

TEST(MissingGradient, SeveralAreNamedTogether) {
  for (const auto transport : {comm::Transport::memory, comm::Transport::sockets}) {
    const auto told = texts(3, transport, 1, [](int rank) {
      return std::vector<std::vector<int>>{{1, 2}, {0, 1, 2}, {0, 1}}[rank];
    });
    expect_all(told,
               "parameters first.weight, last.bias of the model have no gradient after backward on ranks 0, 2 of 3, "
               "wanted one" +
                   std::string(kRemedy),
               transport);
  }
}

TEST(MissingGradient, ALossThatUsesNothingOfTheModelIsToldAlike) {
  for (const int world : {1, 3}) {
    const auto told = texts(world, comm::Transport::memory, 1, [](int) { return std::vector<int>{}; });
    const std::string where = world == 1 ? "" : " on any of 3 ranks";
    expect_all(told,
               "parameters first.weight, fc.weight, last.bias of the model have no gradient after backward" + where +
                   ", wanted one" + kRemedy,
               comm::Transport::memory);
  }
}

TEST(MissingGradient, OfManyTheFirstAreNamed) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    std::vector<Tensor> weights;
    std::vector<std::string> names;
    for (int i = 0; i < 9; ++i) {
      weights.push_back(at::ones({2}).requires_grad_());
      names.push_back("layer" + std::to_string(i));
    }
    DistributedDataParallel replicas(weights, {}, names, group);
    const auto loss = weights[4].sum();
    replicas.before_backward(loss);
    EXPECT_EQ(text_of<c10::ValueError>([&] { loss.backward(); }),
              "parameters layer0, layer1, layer2, layer3, layer5 and 3 more of the model have no gradient after "
              "backward on any of 2 ranks, wanted one" +
                  std::string(kRemedy));
  });
}

TEST(MissingGradient, ReplicasAreOfNoUseAfterwards) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    Three model;
    DistributedDataParallel replicas(model.weights, {}, Three::names(), group);
    const auto loss = model.loss({0}), whole = model.loss({0, 1, 2});
    replicas.before_backward(loss);
    EXPECT_THROW(loss.backward(), c10::ValueError);
    EXPECT_EQ(text_of([&] { replicas.before_backward(whole); }),
              "data parallel: the backward before this one ended with an error, wanted one that came to its end: make "
              "DistributedDataParallel anew");
  });
}

TEST(MissingGradient, AGradientThatIsNotANumberIsNone) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const int world : {1, 2, 3}) {
    comm::run_ranks(world, [&](comm::ProcessGroup& group) {
      Three model;
      DistributedDataParallel replicas(model.weights, {}, Three::names(), group, Three::one_bucket_each());
      for (int step = 0; step < 2; ++step) {
        for (auto& weight : model.weights) weight.mutable_grad().reset();
        const auto loss = model.loss({0, 1, 2}) * (group.rank() == 0 ? kNan : 1.0);
        replicas.before_backward(loss);
        loss.backward();
        for (const auto& weight : model.weights) EXPECT_TRUE(weight.grad().isnan().all().item<bool>());
      }
    });
  }
}

TEST(MissingGradient, FrozenParametersNeedNone) {
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](comm::ProcessGroup& group) {
      auto frozen = at::full({3}, group.rank() + 1.0), trained = at::ones({3}).requires_grad_();
      DistributedDataParallel replicas({frozen, trained}, {}, {"frozen", "trained"}, group);
      EXPECT_TRUE(frozen.equal(at::ones({3})));  // rank 0's, all the same
      const auto loss = (frozen * trained).sum();
      replicas.before_backward(loss);
      loss.backward();
      EXPECT_TRUE(trained.grad().equal(at::full({3}, world)));
    });
  }
}

}  // namespace
}  // namespace tandem::parallel
