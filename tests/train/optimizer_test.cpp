#include "tandem/train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/comm/split.h"
#include "tandem/comm/world.h"
#include "tandem/storage/safetensors.h"
#include "tandem/train/lr_schedule.h"
#include "tests/support/python.h"
#include "tests/support/text_of.h"

namespace tandem::train {
namespace {

using test::python;
using test::python_has_safetensors;
using test::run_python;
using test::TemporaryFolder;
using test::text_of;

constexpr int kSteps = 5;

Tensor drawn(at::IntArrayRef shape, uint64_t stream) {
  const auto tensor = at::empty(shape, at::kDouble);
  fill_normal_(tensor, 1.0, 9, stream);
  return tensor;
}

std::vector<Tensor> gradients_of(int step) { return {drawn({5, 3}, 100 + step), drawn({7}, 200 + step)}; }

const ParameterGroup kSlowA = {
    .takes = [](const Parameter& parameter) { return parameter.name == "a"; }, .weight_decay = 0.2, .rate = 0.5};

struct OptimizerCase {
  std::string name, constructor;  // Python's
  OptimizerOptions options;
};

const std::vector<OptimizerCase>& cases() {
  static const std::vector<OptimizerCase> all = {
      {"nesterov",
       "torch.optim.SGD(p, lr=1, momentum=0.9, nesterov=True, weight_decay=0.01)",
       {.momentum = 0.9, .nesterov = true, .weight_decay = 0.01}},
      {"sgd", "torch.optim.SGD(p, lr=1)", {.momentum = 0.0, .nesterov = false, .weight_decay = 0.0}},
      {"adamw",
       "torch.optim.AdamW(p, lr=1, betas=(0.8, 0.99), weight_decay=0.05)",
       {.kind = OptimizerKind::adamw, .weight_decay = 0.05, .beta1 = 0.8, .beta2 = 0.99}},
      {"adam",
       "torch.optim.Adam(p, lr=1, betas=(0.5, 0.999), weight_decay=0.05)",
       {.kind = OptimizerKind::adam, .weight_decay = 0.05, .beta1 = 0.5, .beta2 = 0.999}},
      {"no_decay_of_b",
       "torch.optim.SGD([dict(params=p[:1]), dict(params=p[1:], weight_decay=0)], lr=1, momentum=0.9, nesterov=True, "
       "weight_decay=0.01)",
       {.momentum = 0.9, .nesterov = true, .weight_decay = 0.01, .groups = {vectors_without_decay()}}},
      {"slow_a",
       "torch.optim.AdamW([dict(params=p[:1], weight_decay=0.2, rate=0.5), dict(params=p[1:])], lr=1, "
       "betas=(0.8, 0.99), weight_decay=0.05)",
       {.kind = OptimizerKind::adamw, .weight_decay = 0.05, .beta1 = 0.8, .beta2 = 0.99, .groups = {kSlowA}}}};
  return all;
}

/// Our parameters after kSteps, with what Python needs to do the same.
void run_ours(const OptimizerCase& one, const std::filesystem::path& folder) {
  std::vector<Parameter> parameters = {Parameter::replicated("a", drawn({5, 3}, 1)),
                                       Parameter::replicated("b", drawn({7}, 2))};
  std::vector<storage::NamedTensor> file = {{"a0", parameters[0].tensor.clone()}, {"b0", parameters[1].tensor.clone()}};
  for (auto& parameter : parameters) parameter.tensor.set_requires_grad(true);
  Optimizer optimizer(parameters, one.options);
  for (int step = 0; step < kSteps; ++step) {
    const auto gradients = gradients_of(step);
    for (size_t i = 0; i < 2; ++i) {
      parameters[i].tensor.mutable_grad() = gradients[i].clone();
      file.push_back({std::string(i == 0 ? "a" : "b") + "_grad" + std::to_string(step), gradients[i]});
    }
    optimizer.step(0.1 / (1 + step));
    optimizer.zero_grad();
  }
  file.push_back({"a", parameters[0].tensor.detach()});
  file.push_back({"b", parameters[1].tensor.detach()});
  storage::write_safetensors(folder / (one.name + ".safetensors"), file);
}

std::string numbers(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    char one[40];
    std::snprintf(one, sizeof one, "%.17g,", value);
    text += one;
  }
  return "[" + text + "]";
}

// Prints what differs.
constexpr const char* kCheck = R"(
import torch
from safetensors.torch import load_file

def check(name, constructor):
    t = load_file(name + '.safetensors')
    p = [torch.nn.Parameter(t['a0'].clone()), torch.nn.Parameter(t['b0'].clone())]
    o = constructor(p)
    for step in range(5):
        for q, n in zip(p, 'ab'): q.grad = t[f'{n}_grad{step}'].clone()
        for group in o.param_groups: group['lr'] = 0.1 / (1 + step) * group.get('rate', 1)
        o.step()
    for q, n in zip(p, 'ab'):
        if not torch.allclose(q, t[n], rtol=1e-13, atol=1e-15): print(name, n, (q - t[n]).abs().max())

def check_one_cycle(ours):
    o = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    s = torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.3, total_steps=40, pct_start=0.3, cycle_momentum=False)
    for i in range(40):
        lr = o.param_groups[0]['lr']
        if abs(lr - ours[i]) > 1e-12: print('onecycle', i, lr, ours[i])
        o.step(); s.step() if i < 39 else None
)";

/// One start of Python for all: importing torch is what takes the time.
TEST(OptimizerAgainstTorch, SgdAdamWAndOneCycle) {
  if (!python_has_safetensors()) GTEST_SKIP() << python() << " lacks torch or safetensors";
  const TemporaryFolder folder;
  std::string script = kCheck;
  for (const auto& one : cases()) {
    run_ours(one, folder.path());
    script += "\ncheck('" + one.name + "', lambda p: " + one.constructor + ")";
  }
  std::vector<double> rates;
  for (int step = 0; step < 40; ++step) {
    rates.push_back(learning_rate({.lr = 0.3, .steps = 40, .warmup = 0.3}, step));
  }
  const auto result = run_python(folder, script + "\ncheck_one_cycle(" + numbers(rates) + ")\n");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(result.output, "");
}

TEST(Optimizer, RowByRowIsTheSameStep) {
  for (const auto& one : cases()) {
    std::vector<Parameter> whole = {Parameter::replicated("a", drawn({7, 3}, 1))},
                           rows = {Parameter::replicated("a", drawn({7, 3}, 1))};
    Optimizer together(whole, one.options), apart(rows, one.options);
    for (int step = 0; step < kSteps; ++step) {
      const auto gradient = drawn({7, 3}, 100 + step);
      whole[0].tensor.mutable_grad() = gradient.clone();
      together.step(0.1);
      const auto update = apart.step_rows(0, 0.1);
      update({.begin = 0, .count = 4}, gradient.narrow(0, 0, 4).clone());
      update({.begin = 4, .count = 3}, gradient.narrow(0, 4, 3).clone());
      EXPECT_TRUE(rows[0].tensor.equal(whole[0].tensor)) << one.name;
    }
  }
}

Tensor sparse_rows(const Tensor& ids, const Tensor& rows, const Tensor& whole) {
  return at::sparse_coo_tensor(ids.unsqueeze(0), rows, whole.sizes());
}

/// What stands in `ids` of a step: about a third of the rows, others each time.
Tensor some_ids(int64_t rows, int step) {
  const auto drawn_numbers = drawn({rows}, 300 + step);
  return drawn_numbers.gt(0.4).nonzero().flatten();
}

TEST(Optimizer, SparseGradientsLeaveOtherRowsUntouched) {
  for (const auto& one : cases()) {
    std::vector<Parameter> some = {Parameter::replicated("a", drawn({20, 3}, 1))},
                           dense = {Parameter::replicated("a", drawn({20, 3}, 1))};
    Optimizer sparse(some, one.options), whole(dense, one.options);
    const auto ids = some_ids(20, 0);
    const auto rows = drawn({ids.numel(), 3}, 100);
    some[0].tensor.mutable_grad() = sparse_rows(ids, rows, some[0].tensor);
    dense[0].tensor.mutable_grad() = sparse_rows(ids, rows, some[0].tensor).to_dense();
    sparse.step(0.1);
    whole.step(0.1);
    const auto is_in = at::zeros({20}, at::kBool).index_fill_(0, ids, true).unsqueeze(1);
    EXPECT_TRUE(some[0].tensor.equal(at::where(is_in, dense[0].tensor, drawn({20, 3}, 1)))) << one.name;
  }
}

/// As of two micro-batches that have rows in common: the rows' gradients add up, also in the norm.
TEST(Optimizer, ARowThatComesTwiceGetsTheSum) {
  const auto group = comm::make_single_group();
  for (const auto& one : cases()) {
    std::vector<Parameter> some = {Parameter::replicated("a", drawn({20, 3}, 1))},
                           dense = {Parameter::replicated("a", drawn({20, 3}, 1))};
    Optimizer sparse(some, one.options), whole(dense, one.options);
    const auto ids = at::cat({at::arange(20), at::tensor({7, 3, 7})});
    for (int64_t step = 0; step < 3; ++step) {
      const auto gradient = sparse_rows(ids, drawn({23, 3}, 100 + step), some[0].tensor);
      some[0].tensor.mutable_grad() = gradient;
      dense[0].tensor.mutable_grad() = gradient.to_dense();
      EXPECT_DOUBLE_EQ(clip_grad_norm(some, 1, *group), clip_grad_norm(dense, 1, *group));
      sparse.step(0.1);
      whole.step(0.1);
      EXPECT_TRUE(at::allclose(some[0].tensor, dense[0].tensor, 1e-6, 1e-7)) << one.name;
    }
  }
}

/// Many steps, more than are put off at most; the rate changes in each.
TEST(Optimizer, RowsThatArePutOffGoWhereADenseStepWouldHaveMovedThem) {
  const std::vector<OptimizerOptions> all = {{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
                                             {.momentum = 0.9, .nesterov = false, .weight_decay = 0.01},
                                             {.momentum = 0.0, .nesterov = false, .weight_decay = 0.01},
                                             {.momentum = 0.9, .weight_decay = 0.01, .groups = {kSlowA}}};
  for (const auto& options : all) {
    for (const bool in_backward : {false, true}) {
      std::vector<Parameter> some = {Parameter::replicated("a", drawn({20, 3}, 1))},
                             dense = {Parameter::replicated("a", drawn({20, 3}, 1))};
      Optimizer lazy(some, options), whole(dense, options);
      lazy.move_all_rows(0);
      for (int step = 0; step < 600; ++step) {
        const double rate = 0.1 / (1 + step % 7);
        const auto ids = step < 300 ? some_ids(20, step) : some_ids(20, 0);  // later many rows wait long
        const Rows rows = {.count = ids.numel(), .ids = ids};
        lazy.prepare_rows(rows);
        EXPECT_TRUE(at::allclose(rows.of(some[0].tensor), rows.of(dense[0].tensor), 1e-11, 1e-13)) << step;
        const auto gradient = rows.of(some[0].tensor) * 0.3 + drawn({ids.numel(), 3}, 1000 + step);
        dense[0].tensor.mutable_grad() = sparse_rows(ids, gradient, some[0].tensor).to_dense();
        whole.step(rate);
        if (in_backward) {
          lazy.step_rows(0, rate)(rows, gradient);
        } else {
          some[0].tensor.mutable_grad() = sparse_rows(ids, gradient, some[0].tensor);
        }
        lazy.step(rate);
        lazy.zero_grad();
      }
      lazy.settle();
      EXPECT_TRUE(at::allclose(some[0].tensor, dense[0].tensor, 1e-11, 1e-13));
      if (options.momentum > 0) {
        EXPECT_TRUE(at::allclose(lazy.state()[0].tensor, whole.state()[0].tensor, 1e-11, 1e-13));
      }
    }
  }
}

/// Rows that were prepared for a step which is then left out are where a dense optimizer has them.
TEST(Optimizer, AStepThatIsLeftOutMovesNoRow) {
  const OptimizerOptions options = {.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
  std::vector<Parameter> some = {Parameter::replicated("a", drawn({20, 3}, 1))},
                         dense = {Parameter::replicated("a", drawn({20, 3}, 1))};
  Optimizer lazy(some, options), whole(dense, options);
  lazy.move_all_rows(0);
  for (int step = 0; step < 40; ++step) {
    const auto ids = some_ids(20, step);
    const Rows rows = {.count = ids.numel(), .ids = ids};
    lazy.prepare_rows(rows);
    if (step % 3 == 1) {
      lazy.drop_step();
      continue;
    }
    const auto gradient = rows.of(some[0].tensor) * 0.3 + drawn({ids.numel(), 3}, 1000 + step);
    some[0].tensor.mutable_grad() = sparse_rows(ids, gradient, some[0].tensor);
    dense[0].tensor.mutable_grad() = some[0].tensor.grad().to_dense();
    lazy.step(0.1);
    whole.step(0.1);
    lazy.zero_grad();
  }
  lazy.settle();
  EXPECT_TRUE(at::allclose(some[0].tensor, dense[0].tensor, 1e-11, 1e-13));
}

TEST(Schedule, OtherShapes) {
  const ScheduleOptions cosine = {.kind = ScheduleKind::cosine, .lr = 1.0, .steps = 100, .warmup = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 55), 0.5);
  EXPECT_NEAR(learning_rate(cosine, 99), 0.0, 1e-3);
  const ScheduleOptions step = {
      .kind = ScheduleKind::step, .lr = 1.0, .steps = 100, .warmup = 0, .milestones = {30, 60}, .gamma = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(step, 29), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(step, 30), 0.1);
  EXPECT_NEAR(learning_rate(step, 99), 0.01, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate({.kind = ScheduleKind::constant, .lr = 0.7, .steps = 9, .warmup = 0}, 5), 0.7);
  EXPECT_DOUBLE_EQ(learning_rate({.lr = 0.3, .steps = 1, .warmup = 0.3}, 0), learning_rate({.lr = 0.3, .steps = 1}, 0));
}

TEST(Optimizer, ClipsTheNormOverAllRanks) {
  const auto whole = drawn({7, 3}, 5), shared = drawn({4}, 6);
  const double norm = at::cat({whole.flatten(), shared}).norm().item<double>();
  for (const int world : {1, 2, 3}) {
    comm::run_ranks(world, [&](comm::ProcessGroup& group) {
      const auto [begin, end] = comm::split_range(7, world, group.rank());
      std::vector<Parameter> parameters = {
          Parameter::replicated("shared", at::zeros({4}, at::kDouble)),
          Parameter::split("split", at::zeros({end - begin, 3}, at::kDouble), {0, begin, end - begin, 7})};
      parameters[0].tensor.mutable_grad() = shared.clone();
      parameters[1].tensor.mutable_grad() = whole.slice(0, begin, end).clone();
      EXPECT_NEAR(clip_grad_norm(parameters, norm / 2, group), norm, 1e-12);
      EXPECT_TRUE(at::allclose(parameters[1].tensor.grad(), whole.slice(0, begin, end) / 2, 1e-6));
      EXPECT_TRUE(at::allclose(parameters[0].tensor.grad(), shared / 2, 1e-6));
    });
  }
}

TEST(Optimizer, ClipsByTheSameNormHoweverTensorsAreCut) {
  const auto whole = drawn({11, 3}, 5), shared = drawn({4}, 6);
  std::vector<double> norms;
  for (const int world : {1, 2, 3, 6}) {
    comm::run_ranks(world, [&](comm::ProcessGroup& group) {
      const auto [begin, end] = comm::split_range(11, world, group.rank());
      const int64_t count = end - begin;
      std::vector<Parameter> parameters = {
          Parameter::replicated("shared", at::zeros({4}, at::kDouble)),
          Parameter::split("split", at::zeros({count, 3}, at::kDouble), {0, begin, count, 11})};
      parameters[0].tensor.mutable_grad() = shared.clone();
      parameters[1].tensor.mutable_grad() = whole.narrow(0, begin, count).clone();
      const double norm = clip_grad_norm(parameters, 100, group, NormSum::exactly);
      if (group.rank() == 0) norms.push_back(norm);
    });
  }
  EXPECT_EQ(norms, std::vector<double>(4, norms[0]));
  EXPECT_NEAR(norms[0], at::cat({whole.flatten(), shared}).norm().item<double>(), 1e-12);
}

/// As a worker beside servers that update: it has nothing, and takes part in the sum.
TEST(Optimizer, ClipsOnARankThatHoldsNothing) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    for (const auto sum : {NormSum::quickly, NormSum::exactly}) {
      std::vector<Parameter> parameters;
      if (group.rank() < 2) {
        parameters.push_back(Parameter::split("split", at::zeros({2}), {0, 2 * group.rank(), 2, 4}));
        parameters[0].tensor.mutable_grad() = at::full({2}, 2.0);
      }
      EXPECT_NEAR(clip_grad_norm(parameters, 1, group, sum), 4, 1e-12);
      for (const auto& parameter : parameters) EXPECT_TRUE(at::allclose(parameter.tensor.grad(), at::full({2}, 0.5)));
    }
  });
}

TEST(Optimizer, LeavesParametersWithoutGradientAlone) {
  std::vector<Parameter> parameters = {Parameter::replicated("a", at::ones({2})),
                                       Parameter::replicated("b", at::ones({2}))};
  Optimizer optimizer(parameters, {});
  parameters[1].tensor.mutable_grad() = at::ones({2});
  optimizer.step(0.1);
  EXPECT_TRUE(parameters[0].tensor.equal(at::ones({2})));
  EXPECT_FALSE(parameters[1].tensor.equal(at::ones({2})));
}

TEST(Optimizer, TheFirstGroupThatTakesAParameterHolds) {
  const auto weight_after = [](std::vector<ParameterGroup> groups) {
    std::vector<Parameter> one = {Parameter::replicated("a", at::ones({1, 1}, at::kDouble))};
    one[0].tensor.mutable_grad() = at::zeros({1, 1}, at::kDouble);
    Optimizer optimizer(one, {.momentum = 0, .nesterov = false, .weight_decay = 0.5, .groups = std::move(groups)});
    optimizer.step(1.0);
    return one[0].tensor.item<double>();
  };
  EXPECT_EQ(weight_after({}), 0.5);
  EXPECT_EQ(weight_after({vectors_without_decay()}), 0.5) << "a matrix is no vector";
  EXPECT_EQ(weight_after({vectors_without_decay(), kSlowA}), 0.9);
  EXPECT_EQ(weight_after({{.takes = kSlowA.takes, .rate = 0.5}, kSlowA}), 0.75) << "decay as without a group";
}

TEST(Optimizer, FaultsAreNamed) {
  const auto text_of = [](const OptimizerOptions& options) -> std::string {
    try {
      Optimizer optimizer({}, options);
    } catch (const SettingsError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text_of({.momentum = 0.0, .nesterov = true}),
            "nesterov is true with momentum 0, wanted a momentum above 0: add nesterov=false for "
            "plain SGD");
  std::vector<Parameter> one = {Parameter::replicated("a", at::ones({2, 2}))};
  Optimizer adam(one, {.kind = OptimizerKind::adamw});
  EXPECT_EQ(test::text_of([&] { adam.move_all_rows(0); }),
            "rows that a step skips cannot be updated late with Adam, wanted SGD");
  EXPECT_EQ(text_of({.groups = {{.takes = kSlowA.takes, .weight_decay = -1}}}),
            "weight_decay of a group is negative, wanted 0 or more");
  EXPECT_EQ(text_of({.groups = {{.takes = kSlowA.takes, .rate = -1}}}),
            "rate of a group is negative, wanted 0 or more");
  EXPECT_EQ(text_of({.momentum = 1.0}), "momentum is 1.000000, wanted 0 or more and less than 1");
}

}  // namespace
}  // namespace tandem::train
