#include "tests/search/planted.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "tandem/base/tangent.h"
#include "tandem/comm/world.h"
#include "tandem/models/cells/cell_layers.h"
#include "tandem/models/genotype.h"
#include "tandem/models/network/layers.h"
#include "tandem/train/lr_schedule.h"
#include "tandem/train/module_task.h"
#include "tandem/train/supervised_step.h"

namespace tandem::search::planted {
namespace {

using models::CellLayer;

constexpr int64_t kImages = 1024, kSteps = 150;

class PlantedNet : public torch::nn::Module {
 public:
  PlantedNet(const std::vector<std::string_view>& names, int64_t channels, bool has_norms, double gain, uint64_t seed)
      : has_norms_(has_norms), gain_(gain) {
    const auto norm = has_norms ? models::Norm::batch : models::Norm::none;
    for (const auto name : names) {
      const models::CellLayerOptions options = {
          .channels = channels, .norm = norm, .is_affine = false, .normalises_pools = true};
      operations_.push_back(register_module("operation_" + std::string(name), models::make_operation(name, options)));
    }
    norm_ = register_module("norm", models::make_normalization(norm, channels, memory::activation_of("relu"), false));
    linear_ = register_module("linear", std::make_shared<models::Linear>(channels, 2, /*bias=*/true));
    const auto alphas = register_module("alphas", std::make_shared<torch::nn::Module>());
    auto generator = at::detail::createCPUGenerator(seed);
    alphas_ = alphas->register_parameter(
        "edge", at::randn({std::ssize(names)}, generator, at::TensorOptions().dtype(at::kFloat)).mul_(1e-3));
    models::initialize(*this, seed);
  }

  Tensor forward(const Tensor& x) const {
    const auto shares = differentiable_log_softmax(alphas_, 0).exp().unbind();
    Tensor sum;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const auto value = operations_[i]->forward(x) * shares[i];
      sum = sum.defined() ? sum + value : value;
    }
    if (has_norms_) sum = norm_->forward(sum).relu();
    return linear_->forward(sum.mean({2, 3}) * gain_);
  }

  Tensor alphas() const { return alphas_; }

 private:
  bool has_norms_;
  double gain_;
  std::vector<std::shared_ptr<CellLayer>> operations_;
  std::shared_ptr<models::Normalization> norm_;
  std::shared_ptr<models::Linear> linear_;
  Tensor alphas_;
};

struct Images {
  Tensor pixels, labels;
};

struct Recipe {
  int64_t batch = 32;
  double rate = 0.025, momentum = 0.9, clip = 5, alphas_rate = 0.02;
  bool is_constant = false;  // the rate
  int64_t steps = kSteps;
  double warmup = 0;

  double alphas_rate_at(int64_t step) const {
    const double rising = std::floor(warmup * static_cast<double>(steps));
    return alphas_rate * std::min(1.0, static_cast<double>(step + 1) / std::max(1.0, rising));
  }
};

/// Random numbers of one seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : generator_(at::detail::createCPUGenerator(seed)) {}

  Tensor normal(at::IntArrayRef sizes) { return at::randn(sizes, generator_, at::kFloat); }
  Tensor uniform(at::IntArrayRef sizes) { return at::rand(sizes, generator_, at::kFloat); }
  Tensor bits(at::IntArrayRef sizes) { return uniform(sizes).lt(0.5).to(at::kFloat); }
  Tensor signs(at::IntArrayRef sizes) { return bits(sizes) * 2 - 1; }
  Tensor order(int64_t n) { return at::randperm(n, generator_, at::kLong); }

 private:
  at::Generator generator_;
};

Tensor checkerboard(int64_t side) {
  const auto i = at::arange(side);
  return (i.unsqueeze(1) + i).remainder(2).to(at::kFloat) * 2 - 1;
}

// Four channels of n images each, [n, 4, 16, 16], in which `bit`, [n, 1, 1, 1] of 0 and 1, is hidden.

constexpr int64_t kSide = 16, kGroup = 4;

std::vector<int64_t> group_sizes(const Tensor& bit) { return {bit.size(0), kGroup, kSide, kSide}; }

/// Whether quarters of the image repeat with or without a change of sign: seen by dilated kernels of 5.
Tensor repeated_quarters(const Tensor& bit, Draw& draw) {
  const auto sign = bit * 2 - 1;
  const auto quarter = draw.normal({bit.size(0), kGroup, kSide / 2, kSide / 2});
  const auto top = at::cat({quarter, sign * quarter}, 3), bottom = at::cat({sign * quarter, quarter}, 3);
  return at::cat({top, bottom}, 2) + 0.2 * draw.normal(group_sizes(bit));
}

/// Rare peaks or rare valleys below zero, where convolutions, which begin with a ReLU, see nothing.
Tensor rare_peaks(const Tensor& bit, Draw& draw) {
  const auto sizes = group_sizes(bit);
  const auto rare = draw.uniform(sizes).lt(0.1).to(at::kFloat);
  return (-1 + (bit * 2 - 1) * (rare - 0.1) - 0.1 * draw.uniform(sizes)).clamp_max(0);
}

/// Noise or a checkerboard of the same numbers: a mean of neighbours tells them apart.
Tensor boards(const Tensor& bit, Draw& draw) {
  const auto sizes = group_sizes(bit);
  const auto noise = draw.signs(sizes);
  const auto board = checkerboard(kSide) * draw.signs({sizes[0], kGroup, 1, 1});
  return at::where(bit > 0, board, noise) - 1 - 0.1 * draw.uniform(sizes);
}

/// Two distributions of equal means: what is left by every third pixel being the highest.
Tensor two_distributions(const Tensor& bit, Draw& draw) {
  const auto sizes = group_sizes(bit);
  const auto u = draw.uniform(sizes);
  const auto two = u.lt(0.5).to(at::kFloat) * 2;
  const auto three = at::where(u < 1.0 / 3, 0.0, at::where(u < 5.0 / 6, 1.0, 3.0)).to(at::kFloat);
  auto values = at::where(bit > 0, three, two);
  values.slice(2, 1, std::nullopt, 3).slice(3, 1, std::nullopt, 3).zero_();
  return -3 * values;
}

struct Planted {
  std::string_view operation;
  Tensor (*draw)(const Tensor& bit, Draw& draw);
};

constexpr std::array kPlanted = {Planted{"dil_conv_5x5", repeated_quarters}, Planted{"max_pool_3x3", rare_peaks},
                                 Planted{"avg_pool_3x3", boards}, Planted{"skip_connect", two_distributions}};

Images draw_planted(std::string_view operation, bool has_random_labels, Draw& draw) {
  Images images;
  std::vector<Tensor> groups;
  for (const auto& [name, draw_group] : kPlanted) {
    const auto bit = draw.bits({kImages, 1, 1, 1});
    groups.push_back(draw_group(bit, draw));
    if (name == operation) images.labels = bit.view({-1}).to(at::kLong);
  }
  images.pixels = at::cat(groups, 1);
  const auto others = draw.bits({kImages}).to(at::kLong);
  if (has_random_labels) images.labels = others;
  return images;
}

/// Channel 0 tells the class. The label's own channel of the two others has a checkerboard, which a maximum sees.
Images draw_shortcut(double amplitude, Draw& draw) {
  constexpr int64_t kSmall = 8;
  constexpr double kWrong = 0.2;
  Images images;
  const auto truth = draw.bits({kImages});
  auto pixels = at::zeros({kImages, 3, kSmall, kSmall});
  pixels.select(1, 0).copy_((truth * 2 - 1).view({-1, 1, 1}).expand({kImages, kSmall, kSmall}));
  const auto wrong = draw.uniform({kImages}).lt(kWrong);
  images.labels = at::where(wrong, 1 - truth, truth).to(at::kLong);
  const auto board = checkerboard(kSmall) * amplitude;
  for (int64_t c = 0; c < 2; ++c) {
    pixels.select(1, 1 + c).copy_(board * truth.eq(c).to(at::kFloat).view({-1, 1, 1}));
  }
  images.pixels = pixels + 0.05 * draw.normal({kImages, 3, 1, 1});
  return images;
}

/// Batches of the images, in a new order each time they have all been seen.
class Batches {
 public:
  Batches(Images images, int64_t batch, uint64_t seed) : images_(std::move(images)), batch_(batch), draw_(seed) {}

  data::Batch next() {
    if (at_ == 0) order_ = draw_.order(kImages);
    const auto chosen = order_.narrow(0, at_, batch_);
    at_ = (at_ + batch_) % kImages;
    return {images_.pixels.index_select(0, chosen), images_.labels.index_select(0, chosen), batch_, 0};
  }

 private:
  Images images_;
  int64_t batch_;
  Draw draw_;
  Tensor order_;
  int64_t at_ = 0;
};

std::vector<Tensor> velocity_of(const train::SupervisedStep& step, const Architect& architect) {
  std::vector<Tensor> velocity;
  for (const auto& weight : architect.weights()) {
    for (const auto& parameter : step.state()) {
      if (parameter.name == "optimizer.momentum_buffer." + weight.name) velocity.push_back(parameter.tensor);
    }
  }
  return velocity;
}

Outcome run(const std::vector<std::string_view>& names, const std::shared_ptr<PlantedNet>& net, Images training,
            Images validation, const Recipe& recipe, const ArchitectOptions& options, uint64_t seed) {
  constexpr double kDecay = 3e-4;
  const auto group = comm::make_single_group();
  parallel::Mesh mesh({}, *group);
  train::ModuleTask task(
      net, [](const Tensor& scores, const Tensor& labels) { return differentiable_cross_entropy(scores, labels); });
  Architect architect(task, options, *group);
  const train::OptimizerOptions sgd = {.momentum = recipe.momentum, .nesterov = false, .weight_decay = kDecay};
  train::SupervisedStep weights(task, {.optimizer = sgd, .clip = recipe.clip, .num_classes = 2}, mesh);
  train::Optimizer alphas(
      architect.alphas(),
      {.kind = train::OptimizerKind::adam, .nesterov = false, .weight_decay = 1e-3, .beta1 = 0.5, .beta2 = 0.999});
  const train::ScheduleOptions schedule = {
      .kind = recipe.is_constant ? train::ScheduleKind::constant : train::ScheduleKind::cosine,
      .lr = recipe.rate,
      .steps = recipe.steps,
      .warmup = recipe.warmup};
  Batches of_training(std::move(training), recipe.batch, 2 * seed),
      of_validation(std::move(validation), recipe.batch, 2 * seed + 1);
  const auto velocity = velocity_of(weights, architect);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    const double rate = train::learning_rate(schedule, step);
    const auto batch = of_training.next();
    architect.run(batch, of_validation.next(),
                  {.rate = rate, .momentum = recipe.momentum, .weight_decay = kDecay, .velocity = velocity});
    alphas.step(recipe.alphas_rate_at(step));
    alphas.zero_grad();
    weights.run(batch, step, rate);
  }
  const auto shares = net->alphas().detach().softmax(0).to(at::kDouble).contiguous();
  return {names, {shares.const_data_ptr<double>(), shares.const_data_ptr<double>() + shares.numel()}};
}

}  // namespace

std::string_view Outcome::first() const { return operations[std::ranges::max_element(shares) - shares.begin()]; }

double Outcome::margin(std::string_view operation) const {
  double own = 0, other = 0;
  for (size_t i = 0; i < operations.size(); ++i) {
    (operations[i] == operation ? own : other) = std::max(operations[i] == operation ? own : other, shares[i]);
  }
  return own - other;
}

std::vector<std::string_view> planted_operations() {
  std::vector<std::string_view> names;
  for (const auto& planted : kPlanted) names.push_back(planted.operation);
  return names;
}

Outcome search_planted(std::string_view operation, uint64_t seed, const SearchOptions& options) {
  constexpr int64_t kDarts = 8, kChannels = 16;
  const auto all = models::operation_names();
  const std::vector<std::string_view> names(all.begin(), all.begin() + kDarts);
  Draw draw(1000 + seed);
  auto training = draw_planted(operation, options.has_random_labels, draw);
  auto validation = draw_planted(operation, options.has_random_labels, draw);
  const auto net = std::make_shared<PlantedNet>(names, kChannels, /*has_norms=*/true, options.gain, seed);
  const auto times = static_cast<double>(options.times);
  const Recipe once;
  const Recipe recipe = {.batch = once.batch * options.times,
                         .rate = once.rate * times,
                         .alphas_rate = once.alphas_rate * options.alphas_times,
                         .steps = once.steps / options.times,
                         .warmup = options.warmup};
  return run(names, net, std::move(training), std::move(validation), recipe,
             {.order = options.order, .product = options.product}, seed);
}

Outcome judge_order(uint64_t seed, int order, Product product) {
  constexpr double kInTraining = 3, kInValidation = 0.15;
  const std::vector<std::string_view> names = {"max_pool_3x3", "skip_connect"};
  Draw draw(2000 + seed);
  auto training = draw_shortcut(kInTraining, draw), validation = draw_shortcut(kInValidation, draw);
  const auto net = std::make_shared<PlantedNet>(names, 3, /*has_norms=*/false, 1, seed);
  const Recipe recipe = {.batch = 64, .rate = 0.5, .momentum = 0, .clip = 0, .is_constant = true};
  return run(names, net, std::move(training), std::move(validation), recipe, {.order = order, .product = product},
             seed);
}

}  // namespace tandem::search::planted
