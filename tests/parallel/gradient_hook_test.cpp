#include "tandem/parallel/gradient_hook.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/base/rng.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/wire_bytes.h"
#include "tandem/comm/world.h"
#include "tandem/memory/meter.h"
#include "tandem/parallel/distributed_data_parallel.h"
#include "tests/support/text_of.h"

namespace tandem::parallel {
namespace {

/// One step whose gradients are given: `gradients[i]` of the parameter i, on this rank.
void step(DistributedDataParallel& replicas, const std::vector<Tensor>& parameters,
          const std::vector<Tensor>& gradients) {
  for (const auto& parameter : parameters) parameter.mutable_grad().reset();
  auto loss = at::zeros({}, parameters[0].options());
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (gradients[i].defined()) loss = loss + (parameters[i] * gradients[i]).sum();
  }
  replicas.before_backward(loss);
  loss.backward();
}

Tensor drawn(at::IntArrayRef shape, uint64_t stream) {
  const auto tensor = at::empty(shape, at::kDouble);
  fill_normal_(tensor, 1.0, 9, stream);
  return tensor.to(at::kFloat);
}

DistributedDataParallelOptions options_of(const char* hook, int64_t bucket_bytes = 25 << 20) {
  return {.bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes, .hook = &gradient_hook(hook)};
}

TEST(GradientHook, AnUnknownNameIsTold) {
  EXPECT_EQ(test::text_of<c10::ValueError>([] { gradient_hook("int8"); }),
            "gradient hook is 'int8', wanted one of sum, fp16, bf16, powersgd, post-local-sgd");
}

TEST(GradientHook, HalfTypesRoundAndHalveTheWire) {
  for (const auto& [name, type] : {std::pair{"fp16", at::kHalf}, std::pair{"bf16", at::kBFloat16}}) {
    for (const int ranks : {2, 3, 4}) {
      for (const auto transport : {comm::Transport::memory, comm::Transport::segments, comm::Transport::sockets}) {
        comm::run_ranks(ranks,
                        [&](comm::ProcessGroup& group) {
                          auto weight = at::zeros({7, 5}).requires_grad_();
                          DistributedDataParallel replicas({weight}, {}, {"weight"}, group, options_of(name));
                          auto expected = at::zeros({7, 5});
                          for (int rank = 0; rank < ranks; ++rank)
                            expected += drawn({7, 5}, rank).to(type).to(at::kFloat);
                          for (int i = 0; i < 2; ++i) {
                            group.meter().reset();
                            step(replicas, {weight}, {drawn({7, 5}, group.rank())});
                            const double error = (type == at::kHalf ? 1e-3 : 8e-3) *
                                                 (transport == comm::Transport::sockets ? ranks : 1);  // rounded sums
                            EXPECT_TRUE(at::allclose(weight.grad(), expected, error, error)) << name << ranks;
                            EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
                            const auto own = comm::WireBytes{group.rank(), ranks}.all_reduce(35, 2);
                            EXPECT_EQ(group.meter().counts().at("all_reduce").bytes,
                                      std::accumulate(own.begin(), own.end(), int64_t{0}));
                          }
                        },
                        {.transport = transport});
      }
    }
  }
}

TEST(GradientHook, ALargeBucketTravelsInPieces) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    auto weight = at::zeros({10}).requires_grad_();
    DistributedDataParallel replicas({weight}, {}, {"weight"}, group, options_of("fp16", 16));
    group.meter().reset();
    step(replicas, {weight}, {at::arange(10, at::kFloat)});
    EXPECT_TRUE(weight.grad().equal(at::arange(10, at::kFloat) * 2));
    EXPECT_EQ(group.meter().counts().at("all_reduce").calls, 3);  // 4, 4 and 2 gradients
    EXPECT_EQ(group.meter().counts().at("all_reduce").bytes, 20);
  });
}

/// Two bytes a gradient, of as many as a bucket has.
TEST(GradientHook, HoldsTheBytesThatItSays) {
  memory::install_meter();
  for (const std::string name : {"sum", "fp16", "bf16"}) {
    for (const int64_t bucket_bytes : {1000, 1 << 20}) {
      comm::run_ranks(2, [&](comm::ProcessGroup& group) {
        const RankScope scope(group.rank());
        const auto weight = at::ones({3000}).requires_grad_();
        group.beside();
        comm::barrier(group);
        const auto before = memory::account(group.rank()).live[static_cast<size_t>(Category::communication)];
        const auto options = options_of(name.c_str(), bucket_bytes);
        DistributedDataParallel replicas({weight}, {}, {"weight"}, group, options);
        const auto held = memory::account(group.rank()).live[static_cast<size_t>(Category::communication)] - before;
        EXPECT_EQ(held, name == "sum" ? 0 : std::min<int64_t>(6000, bucket_bytes / 2)) << name;
        comm::barrier(group);
      });
    }
  }
}

/// Whatever the hook, a parameter without a gradient is named on all ranks.
TEST(GradientHook, EachLetsTheMarkOfAMissingGradientThrough) {
  for (const auto& hook : gradient_hooks()) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      auto first = at::zeros({40, 30}).requires_grad_(), last = at::zeros({40, 30}).requires_grad_();
      DistributedDataParallel replicas({first, last}, {}, {"first", "last"}, group, {.hook = &hook, .hook_rank = 1});
      const auto own = drawn({40, 30}, group.rank());
      const auto text = test::text_of<c10::ValueError>([&] {
        step(replicas, {first, last}, {group.rank() == 1 ? Tensor() : own, own});
      });
      EXPECT_TRUE(text.starts_with("parameter first of the model has no gradient after backward on rank 1 of 3"))
          << hook.name << ": " << text;
    });
  }
}

TEST(GradientHook, EachRecoversFromGradientsThatAreNotFinite) {
  for (const auto& hook : gradient_hooks()) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      auto weight = at::zeros({40, 30}).requires_grad_();
      DistributedDataParallel replicas({weight}, {}, {"weight"}, group, {.hook = &hook, .hook_rank = 1});
      const auto own = at::ones({40, 30});
      step(replicas, {weight}, {group.rank() == 0 ? own * std::numeric_limits<float>::quiet_NaN() : own});
      EXPECT_FALSE(at::isfinite(weight.grad()).all().item<bool>()) << hook.name;
      step(replicas, {weight}, {own});
      EXPECT_TRUE(at::allclose(weight.grad(), own * 2, 1e-5)) << hook.name;
    });
  }
}

TEST(PowerSum, IsExactForMatricesOfItsRankAndForWhatItDoesNotCompress) {
  for (const int ranks : {2, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      auto matrix = at::zeros({30, 40}).requires_grad_(), bias = at::zeros({30}).requires_grad_();
      auto options = options_of("powersgd");
      DistributedDataParallel replicas({matrix, bias}, {}, {"matrix", "bias"}, group, options);
      const auto left = drawn({30, 2}, 50);  // the ranks' gradients share their columns
      const auto gradient_of = [&](int rank) { return left.mm(drawn({2, 40}, 60 + rank)); };
      auto expected = at::zeros({30, 40});
      for (int rank = 0; rank < ranks; ++rank) expected += gradient_of(rank);
      for (int i = 0; i < 4; ++i) {
        group.meter().reset();
        step(replicas, {matrix, bias}, {gradient_of(group.rank()), at::full({30}, group.rank() + 1.0)});
        EXPECT_TRUE(at::allclose(matrix.grad(), expected, 1e-4, 1e-4)) << (matrix.grad() - expected).abs().max();
        EXPECT_TRUE(bias.grad().equal(at::full({30}, ranks * (ranks + 1) / 2.0)));
        const comm::WireBytes wire{group.rank(), ranks};
        int64_t bytes = 0;
        for (const int64_t elements : {30 * 2 + 30, 40 * 2}) {
          const auto sent = wire.all_reduce(elements, 4);
          bytes += std::accumulate(sent.begin(), sent.end(), int64_t{0});
        }
        EXPECT_EQ(group.meter().counts().at("all_reduce").bytes, bytes);
      }
    });
  }
}

/// What a step leaves out comes later: after T equal gradients, T times their sum less errors that do not grow.
TEST(PowerSum, LosesNoGradient) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    auto matrix = at::zeros({12, 64}).requires_grad_();
    auto options = options_of("powersgd");
    options.hook_rank = 3;
    DistributedDataParallel replicas({matrix}, {}, {"matrix"}, group, options);
    const auto sum = drawn({12, 64}, 0) + drawn({12, 64}, 1);  // of rank 12
    auto given = at::zeros({12, 64});
    std::vector<double> missing;
    for (int i = 1; i <= 80; ++i) {
      step(replicas, {matrix}, {drawn({12, 64}, group.rank())});
      given += matrix.grad();
      if (i == 1 || i % 40 == 0) missing.push_back(((given - sum * i).norm() / sum.norm()).item<double>());
    }
    EXPECT_GT(missing[0], 0.3);  // three of twelve directions
    EXPECT_LT(missing[2], 2 * missing[1]);
    EXPECT_LT(missing[2], 10);  // of 80
  });
}

TEST(PowerSum, WantsOneType) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    auto one = at::zeros({2}).requires_grad_(), other = at::zeros({2}, at::kDouble).requires_grad_();
    EXPECT_EQ(test::text_of<c10::ValueError>([&] {
                DistributedDataParallel({one, other}, {}, {"one", "other"}, group, options_of("powersgd"));
              }),
              "powersgd: a parameter is Double and another Float, wanted one type for all");
  });
}

/// The sum of the signs, as a user may have it: one that needs the members of a bucket.
class SignSum : public GradientHook {
 public:
  bool reads_members() const override { return true; }
  void sum(const GradientBucket& bucket, comm::ProcessGroup& group) override {
    for (const auto& member : bucket.members) {
      if (member.name != "bias") member.gradient.sign_();
    }
    comm::all_reduce_(bucket.flat, group, comm::Reduce::sum, bucket.where);
  }
};

TEST(GradientHook, MayBeTheUsersOwn) {
  static constexpr GradientHookKind kSigns{.name = "signs",
                                           .make = [](const std::vector<Tensor>&, const GradientHookOptions&) {
                                             return std::unique_ptr<GradientHook>(std::make_unique<SignSum>());
                                           }};
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    auto weight = at::zeros({2, 3}).requires_grad_(), bias = at::zeros({2}).requires_grad_();
    DistributedDataParallel replicas({weight, bias}, {}, {"weight", "bias"}, group, {.hook = &kSigns});
    for (int i = 0; i < 2; ++i) {
      step(replicas, {weight, bias}, {at::full({2, 3}, -2.0), at::full({2}, 2.0)});
      EXPECT_TRUE(weight.grad().equal(at::full({2, 3}, -3.0)));
      EXPECT_TRUE(bias.grad().equal(at::full({2}, 6.0)));
    }
  });
}

TEST(GradientHook, CallbacksSeeEachGradientBeforeAndAfterItsSum) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool is_view : {true, false}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        auto weight = at::zeros({2, 3}).requires_grad_(), bias = at::zeros({2}).requires_grad_();
        std::map<std::string, double> before, after;
        DistributedDataParallelOptions options = {.gradient_as_bucket_view = is_view};
        options.before_sum = [&](std::string_view name, const Tensor& gradient) {
          before[std::string(name)] = gradient.sum().item<double>();
          if (name == "bias") gradient.mul_(2);  // what travels
        };
        options.after_sum = [&](std::string_view name, const Tensor& gradient) {
          after[std::string(name)] = gradient.sum().item<double>();
        };
        DistributedDataParallel replicas({weight, bias}, {}, {"weight", "bias"}, group, options);
        const double own = group.rank() + 1.0, all = ranks * (ranks + 1) / 2.0;
        for (int i = 0; i < 2; ++i) {
          step(replicas, {weight, bias}, {at::full({2, 3}, own), at::full({2}, own)});
          EXPECT_EQ(before, (std::map<std::string, double>{{"weight", 6 * own}, {"bias", 2 * own}}));
          EXPECT_EQ(after, (std::map<std::string, double>{{"weight", 6 * all}, {"bias", 4 * all}}));
          EXPECT_TRUE(bias.grad().equal(at::full({2}, 2 * all)));
        }
      });
    }
  }
}

TEST(GradientHook, AnExceptionOfACallbackEndsBackward) {
  const auto text = test::text_of([] {
    comm::run_ranks(2, [](comm::ProcessGroup& group) {
      auto weight = at::zeros({2}).requires_grad_();
      DistributedDataParallelOptions options;
      options.before_sum = [&](std::string_view name, const Tensor&) {
        if (group.rank() == 1) throw std::runtime_error("do not like " + std::string(name));
      };
      DistributedDataParallel replicas({weight}, {}, {"weight"}, group, options);
      step(replicas, {weight}, {at::ones({2})});
    });
  });
  EXPECT_NE(text.find("do not like weight"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::parallel
