#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/base/suggest.h"
#include "tandem/base/tangent.h"
#include "tandem/base/value_observer.h"
#include "tandem/memory/batch_norm.h"
#include "tandem/memory/inplace_abn.h"
#include "tandem/models/detail/fused_batch_norm.h"
#include "tandem/models/network/layers.h"

namespace tandem::models {
namespace {

constexpr double kMomentum = 0.1, kEpsilon = 1e-5;
constexpr int64_t kChannelsPerGroup = 16;

/// Overwrites `values`, which must be a new tensor that is used nowhere else, and that backward of its operator does
/// not need.
Tensor finish(Tensor values, const memory::Activation* activation, const Tensor& residual) {
  if (residual.defined()) values.add_(residual);
  return activation ? activation->overwrite(values) : values;
}

/// The weight of a norm that multiplies each channel by a scalar.
Tensor over_channels(const Tensor& scale, int64_t channels) { return scale.expand({channels}).contiguous(); }

/// Both undefined: there are none.
void begin(const Tensor& weight, const Tensor& bias) {
  if (!weight.defined()) return;
  weight.fill_(1);
  bias.zero_();
}

class BatchNorm : public Normalization {
 public:
  BatchNorm(int64_t channels, const memory::Activation& activation, bool is_affine = true)
      : Normalization("BatchNorm", activation) {
    if (is_affine) {
      weight_ = register_parameter("weight", at::empty({channels}));
      bias_ = register_parameter("bias", at::empty({channels}));
    }
    running_mean_ = register_buffer("running_mean", at::empty({channels}));
    running_var_ = register_buffer("running_var", at::empty({channels}));
    num_batches_tracked_ = register_buffer("num_batches_tracked", at::empty({}, at::kLong));
  }

  Tensor forward(const Tensor& input, Then then, const Tensor& residual) override {
    return normalise(input, then, residual, state());
  }

  Tensor scaled(const Tensor& input, const Tensor& scale) override {
    if (weight_.defined()) return Normalization::scaled(input, scale);
    auto state = this->state();
    state.weight = over_channels(scale, input.size(1));
    return normalise(input, Then::nothing, {}, state);
  }

  virtual Tensor normalise(const Tensor& input, Then then, const Tensor& residual,
                           const memory::BatchNormState& state) {
    return told(input, plainly(input, then, residual, state), residual);
  }

  Tensor plainly(const Tensor& input, Then then, const Tensor& residual, const memory::BatchNormState& state) {
    check(input);
    if ((is_training() || !at::GradMode::is_enabled()) && detail::can_fuse(input, residual, state)) {
      const auto* after = following(then);
      const bool relu = after && after->is_rectifier;
      auto output = detail::fused_batch_norm(input, state, is_training(), relu, residual);
      return relu ? output : finish(std::move(output), after, {});
    }
    return finish(memory::batch_norm(input, state, is_training()), following(then), residual);
  }

  void initialize(uint64_t, const std::string&) override {
    const at::NoGradGuard no_grad;
    begin(weight_, bias_);
    running_mean_.zero_();
    running_var_.fill_(1);
    num_batches_tracked_.zero_();
  }

 protected:
  /// Returns the result, and says what it comes from.
  Tensor told(const Tensor& input, Tensor result, const Tensor& residual = {}) const {
    if (auto* observer = value_observer()) {
      observer->computed("batch_norm", result, {input, weight_, bias_, residual});
    }
    return result;
  }

  memory::BatchNormState state() const {
    return {weight_, bias_, running_mean_, running_var_, kMomentum, kEpsilon, num_batches_tracked_, ranks_};
  }

  void check(const Tensor& input) const {
    if (!is_training() || input.numel() == 0 || ranks_) return;
    TORCH_CHECK_VALUE(input.numel() > input.size(1), "batch normalisation: input is ", input.sizes(),
                      ", wanted more than one value a channel in training: raise the batch of each rank");
  }

  std::shared_ptr<memory::StatisticsExchange> ranks_;  // null: the batch is this rank's

 private:
  Tensor weight_, bias_, running_mean_, running_var_, num_batches_tracked_;
};

/// The same with the statistics of all ranks' images.
class SyncBatchNorm : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

  void share_statistics(std::shared_ptr<memory::StatisticsExchange> ranks) override { ranks_ = std::move(ranks); }
};

/// The same with the statistics of a few images at a time, which normalise these. The running statistics move once for
/// each of these groups, in their order. Source: Hoffer, Hubara, Soudry 2017, Train longer, generalize better
/// (arXiv:1705.08741), algorithm 1.
class GhostBatchNorm : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

  Tensor normalise(const Tensor& input, Then then, const Tensor& residual,
                   const memory::BatchNormState& state) override {
    if (!is_training() || input.size(0) <= images_) return BatchNorm::normalise(input, then, residual, state);
    const auto groups = input.split(images_);
    const auto residuals = residual.defined() ? residual.split(images_) : std::vector<Tensor>(groups.size());
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < groups.size(); ++i)
      outputs.push_back(BatchNorm::normalise(groups[i], then, residuals[i], state));
    return at::cat(outputs);
  }

  void normalize_by(int64_t images) override { images_ = images; }

 private:
  int64_t images_ = ModelOptions().ghost;
};

/// In place where the activation follows at once. After a sum with the shortcut, which needs the normalised values
/// without activation, and where none follows, it is BatchNorm and a plain activation.
class InplaceAbn : public BatchNorm {
 public:
  InplaceAbn(int64_t channels, kernels::Invertible invertible, std::string_view plain)
      : BatchNorm(channels, memory::activation_of(plain)), invertible_(invertible) {}

  Tensor forward(const Tensor& input, Then then, const Tensor& residual) override {
    const bool at_once = then == Then::activation && !residual.defined();
    if (!at_once) return BatchNorm::forward(input, then, residual);
    check(input);
    return told(input, memory::inplace_abn(input, invertible_, state(), is_training()));
  }

  bool keeps_input() const override { return false; }

  void set_activation(const memory::Activation& activation) override {
    TORCH_CHECK_VALUE(false, "activation is ", activation.name,
                      " for an in-place norm, wanted its own, which is a part ",
                      "of it: build the model with another norm");
  }

 private:
  kernels::Invertible invertible_;
};

class GroupNorm : public Normalization {
  /// With channels last, libtorch's backward writes a gradient of the input also where none is wanted, to no memory,
  /// and its tangent takes a view that there is none of.
  bool needs_copy(const Tensor& input) const {
    if (input.suggest_memory_format() != at::MemoryFormat::ChannelsLast) return false;
    const bool is_trained = weight_.defined() && (weight_.requires_grad() || bias_.requires_grad());
    return tangent_of(input).defined() || (at::GradMode::is_enabled() && is_trained && !input.requires_grad());
  }

 public:
  GroupNorm(int64_t channels, const memory::Activation& activation, bool is_affine)
      : Normalization("GroupNorm", activation) {
    if (!is_affine) return;
    weight_ = register_parameter("weight", at::empty({channels}));
    bias_ = register_parameter("bias", at::empty({channels}));
  }

  Tensor forward(const Tensor& input, Then then, const Tensor& residual) override {
    const auto plain = laid_out_for(input);
    return finish(at::group_norm(plain, groups_of(plain), weight_, bias_, kEpsilon), following(then), residual);
  }

  Tensor scaled(const Tensor& input, const Tensor& scale) override {
    if (weight_.defined()) return Normalization::scaled(input, scale);
    return at::group_norm(laid_out_for(input), groups_of(input), over_channels(scale, input.size(1)), {}, kEpsilon);
  }

  void initialize(uint64_t, const std::string&) override {
    const at::NoGradGuard no_grad;
    begin(weight_, bias_);
  }

 private:
  Tensor laid_out_for(const Tensor& input) const {
    return needs_copy(input) ? input.clone(at::MemoryFormat::Contiguous) : input;
  }

  static int64_t groups_of(const Tensor& input) {
    const int64_t channels = input.size(1);
    return input.dim() > 2 && channels % kChannelsPerGroup == 0 ? channels / kChannelsPerGroup : 1;
  }

  Tensor weight_, bias_;
};

class NoNormalization : public Normalization {
 public:
  NoNormalization(int64_t, const memory::Activation& activation, bool) : Normalization("NoNormalization", activation) {}

  Tensor forward(const Tensor& input, Then then, const Tensor& residual) override {
    return finish(input, following(then), residual);
  }

  bool keeps_input() const override { return false; }

  void initialize(uint64_t, const std::string&) override {}
};

template <class Kind>
std::shared_ptr<Normalization> made(int64_t channels, const memory::Activation& activation, bool is_affine) {
  return std::make_shared<Kind>(channels, activation, is_affine);
}

/// `plain`: the same activation where it cannot be in place.
template <kernels::Invertible invertible, const auto& plain>
std::shared_ptr<Normalization> made_in_place(int64_t channels, const memory::Activation&, bool) {
  return std::make_shared<InplaceAbn>(channels, invertible, plain);
}

using kernels::Invertible;
constexpr std::string_view kLeaky = "leaky-relu", kElu = "elu", kSwish = "swish-fused";

struct NormEntry {
  std::string_view name;
  Norm norm;
  std::shared_ptr<Normalization> (*make)(int64_t channels, const memory::Activation& activation, bool is_affine);
  bool has_own_activation = false, shares_statistics = false;
  int64_t together = 1;  // channels that are normalised together
};

constexpr std::array kNorms = {
    NormEntry{"batch", Norm::batch, made<BatchNorm>},
    NormEntry{.name = "group", .norm = Norm::group, .make = made<GroupNorm>, .together = kChannelsPerGroup},
    NormEntry{"none", Norm::none, made<NoNormalization>},
    NormEntry{"abn-leaky", Norm::abn_leaky, made_in_place<Invertible::leaky_relu, kLeaky>, true},
    NormEntry{"abn-elu", Norm::abn_elu, made_in_place<Invertible::elu, kElu>, true},
    NormEntry{"abn-swish", Norm::abn_swish, made_in_place<Invertible::swish, kSwish>, true},
    NormEntry{"sync", Norm::sync, made<SyncBatchNorm>, false, true},
    NormEntry{"ghost", Norm::ghost, made<GhostBatchNorm>}};

const NormEntry& norm_entry(Norm norm) { return *std::ranges::find(kNorms, norm, &NormEntry::norm); }

}  // namespace

std::span<const std::string_view> norm_names() {
  static constexpr auto names = [] {
    std::array<std::string_view, kNorms.size()> all;
    std::ranges::transform(kNorms, all.begin(), &NormEntry::name);
    return all;
  }();
  return names;
}

Norm norm_of(std::string_view name) {
  const auto at = std::ranges::find(kNorms, name, &NormEntry::name);
  if (at != kNorms.end()) return at->norm;
  const auto names = norm_names();
  throw SettingsError("norm is '" + std::string(name) + "', wanted " + one_of({names.begin(), names.end()}));
}

bool has_own_activation(Norm norm) { return norm_entry(norm).has_own_activation; }
bool shares_statistics(Norm norm) { return norm_entry(norm).shares_statistics; }

layers::Division divide_channels(const ModelOptions& options, const std::string& block, int64_t channels) {
  const int64_t together = norm_entry(options.norm).together;
  if (together == 1) return divide(options, block, channels, "channels");
  const int64_t groups = channels % together == 0 ? channels / together : 1;
  return divide(options, block, groups, "groups of channels").times(channels / groups);
}

std::shared_ptr<Normalization> make_normalization(Norm norm, int64_t channels, const memory::Activation& activation,
                                                  bool is_affine) {
  return norm_entry(norm).make(channels, activation, is_affine);
}

}  // namespace tandem::models
