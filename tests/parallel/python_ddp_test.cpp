#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include "tandem/base/context.h"
#include "tandem/comm/world.h"
#include "tandem/parallel/join.h"
#include "tandem/parallel/post_local_sgd.h"
#include "tests/support/python.h"

// The same steps as torch's DistributedDataParallel takes in Python, on two processes with Gloo.
namespace tandem::parallel {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kSteps = 10, kRows = 6, kJoined = 7;

const test::OracleAnswer& oracle() {
  static const auto answer = test::ask_python("ddp.py", {});
  return answer;
}

const Tensor& told(const std::string& key) { return oracle().tensors.at(key); }

struct Model : torch::nn::Module {
  Model() {
    first = register_module("first", torch::nn::Linear(6, 8));
    branch = register_module("branch", torch::nn::Linear(8, 8));
    last = register_module("last", torch::nn::Linear(8, 3));
    const at::NoGradGuard no_grad;
    for (const auto& entry : named_parameters()) entry.value().copy_(told("initial/" + entry.key()));
  }

  Tensor forward(Tensor x, bool has_branch) {
    x = at::tanh(first(x));
    if (has_branch) x = x + at::tanh(branch(x));
    return last(x);
  }

  torch::nn::Linear first = nullptr, branch = nullptr, last = nullptr;
};

struct Way {
  std::string name;
  int64_t micro_batches = 1;
  double clip = 0;
  DistributedDataParallelOptions options = {};
  bool leaves_branch_out = false, joins = false, joined_ranks_step = false;

  bool has_branch(int64_t step, int rank) const {
    return !leaves_branch_out || (step % 3 != 0 && !(rank == 1 && step % 2 == 1));
  }
};

/// One rank of a training in the way that the oracle has named `way.name`.
class Rank {
 public:
  Rank(const Way& way, comm::ProcessGroup& group)
      : way_(way),
        group_(group),
        replicas_(model_, group, way.options),
        optimizer_(model_.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {}

  void train() {
    Join join(replicas_);
    const int64_t steps = way_.joins && group_.rank() == 1 ? kJoined : kSteps;
    for (int64_t step = 0; step < steps; ++step) {
      add_gradients(step, way_.joins ? join.begin(kRows).ranks : kRanks);
      update();
    }
    if (way_.joins) join.end(way_.joined_ranks_step ? [this] { update(); } : std::function<void()>());
  }

  void expect_the_oracles_weights() {
    for (const auto& entry : model_.named_parameters()) {
      const auto& wanted = told(way_.name + "/" + entry.key());
      EXPECT_TRUE(at::allclose(entry.value(), wanted, 0, 1e-6))
          << way_.name << " " << entry.key() << " differs by " << (entry.value() - wanted).abs().max();
    }
  }

 private:
  /// The mean of the means over the own rows of `ranks` ranks.
  void add_gradients(int64_t step, int64_t ranks) {
    const auto inputs = told("inputs")[step][group_.rank()], targets = told("targets")[step][group_.rank()];
    const int64_t rows = kRows / way_.micro_batches;
    for (int64_t i = 0; i < way_.micro_batches; ++i) {
      const MicroBatch micro{i, way_.micro_batches};
      replicas_.before_forward(micro);
      const auto output = model_.forward(inputs.narrow(0, i * rows, rows), way_.has_branch(step, group_.rank()));
      const auto loss = (output - targets.narrow(0, i * rows, rows)).square().mean() / (ranks * way_.micro_batches);
      replicas_.before_backward(loss, micro);
      loss.backward();
    }
  }

  void update() {
    if (way_.clip > 0) torch::nn::utils::clip_grad_norm_(model_.parameters(), way_.clip);
    optimizer_.step();
    replicas_.zero_grad();  // torch::optim would detach the gradients from their buckets
  }

  const Way& way_;
  comm::ProcessGroup& group_;
  Model model_;
  DistributedDataParallel replicas_;
  torch::optim::SGD optimizer_;
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class PythonDdp : public testing::TestWithParam<Way> {};

TEST_P(PythonDdp, HasTheSameWeightsAfterTenSteps) {
  if (oracle().missing) GTEST_SKIP() << "no oracle: " << oracle().text;
  for (const auto transport : {comm::Transport::memory, comm::Transport::segments, comm::Transport::sockets}) {
    for (const bool is_view : {true, false}) {
      auto way = GetParam();
      way.options.gradient_as_bucket_view = is_view;
      comm::run_ranks(kRanks,
                      [&](comm::ProcessGroup& group) {
                        Rank rank(way, group);
                        rank.train();
                        rank.expect_the_oracles_weights();
                      },
                      {.transport = transport});
    }
  }
}

const Way kWays[] = {
    {.name = "plain"},
    {.name = "plain", .options = {.bucket_bytes = 64, .first_bucket_bytes = 64}},
    {.name = "plain", .options = {.static_graph = true}},
    {.name = "accumulate", .micro_batches = 2},
    {.name = "clip", .clip = 0.05},
    {.name = "unused", .options = {.find_unused_parameters = true}, .leaves_branch_out = true},
    {.name = "join", .joins = true},
    {.name = "join", .joins = true, .joined_ranks_step = true},
};
INSTANTIATE_TEST_SUITE_P(Ways, PythonDdp, testing::ValuesIn(kWays),
                         [](const auto& info) { return info.param.name + std::to_string(info.index); });

/// The last step is one with a mean, in Python too.
TEST(PythonPostLocalSgd, HasTheSameWeightsAfterTenSteps) {
  if (oracle().missing) GTEST_SKIP() << "no oracle: " << oracle().text;
  for (const auto transport : {comm::Transport::memory, comm::Transport::segments, comm::Transport::sockets}) {
    comm::run_ranks(kRanks,
                    [&](comm::ProcessGroup& group) {
                      Model model;
                      std::vector<Parameter> parameters;
                      for (const auto& entry : model.named_parameters()) {
                        parameters.push_back(Parameter::replicated(entry.key(), entry.value()));
                      }
                      PostLocalSgd sync(parameters, {}, group, {}, {.start = 3, .every = 3});
                      torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
                      for (int64_t step = 0; step < kSteps; ++step) {
                        auto context = current_context();
                        context.step = step;
                        const ContextScope scope(context);
                        const MicroBatch all{0, 1, kRows, kRanks * kRows};
                        sync.before_forward(all);
                        const auto output = model.forward(told("inputs")[step][group.rank()], true);
                        const auto loss = (output - told("targets")[step][group.rank()]).square().mean() / kRanks;
                        sync.before_backward(loss, all);
                        loss.backward();
                        sync.after_backward(all);
                        optimizer.step();
                        for (const auto& parameter : parameters) parameter.tensor.mutable_grad().reset();
                        sync.after_step();
                      }
                      for (const auto& parameter : parameters) {
                        const auto& wanted = told("post_local/" + parameter.name);
                        EXPECT_TRUE(at::allclose(parameter.tensor, wanted, 0, 1e-6)) << parameter.name;
                      }
                    },
                    {.transport = transport});
  }
}

}  // namespace
}  // namespace tandem::parallel
