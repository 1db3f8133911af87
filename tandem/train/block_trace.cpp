#include "tandem/train/block_trace.h"

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "tandem/base/context.h"
#include "tandem/comm/collectives.h"

namespace tandem::train {
namespace {

/// splitmix64's last step: each bit of x changes half of the result's.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// One number of a value.
void count_in(BlockNumbers& numbers, double value, uint64_t sample, uint64_t place) {
  const auto key = mixed(mixed(sample + 0x9E3779B97F4A7C15U) + place);
  constexpr double kToUnit = 1.0 / 9007199254740992.0;  // of 53 bits
  const double weight = 2 * static_cast<double>(key >> 11) * kToUnit - 1;
  numbers.hash += mixed(key ^ std::bit_cast<uint64_t>(value));
  numbers.sum += value;
  numbers.squares += value * value;
  if (!(std::abs(value) <= numbers.largest)) numbers.largest = std::abs(value);  // one that is no number stays
  numbers.projection += value * weight;
}

/// Which number of the whole sample each number of this rank's part is.
class Places {
 public:
  Places(const Tensor& value, const std::optional<memory::Block::Part>& part) {
    if (!part || value.dim() == 0) return;
    const auto inner = c10::multiply_integers(value.sizes().slice(part->dim + 1));
    own_ = value.size(part->dim) * inner;
    whole_ = part->total * inner;
    first_ = part->first * inner;
  }

  int64_t operator()(int64_t i) const { return own_ == 0 ? i : i / own_ * whole_ + first_ + i % own_; }

 private:
  int64_t own_ = 0, whole_ = 0, first_ = 0;  // numbers of a row; 0: the sample is whole
};

}  // namespace

BlockTrace::BlockTrace(parallel::Mesh& mesh, bool in_shards, c10::Device device)
    : mesh_(mesh), in_shards_(in_shards), device_(device) {}

void BlockTrace::begin_step(int64_t step) {
  step_ = step + 1;
  micro_batch_ = -1;
  last_block_.clear();
  entries_.clear();
  of_block_.clear();
  times_.clear();
}

/// What ranks have alike counts on the first of them.
bool BlockTrace::counts_here(const Tensor& value, bool is_divided) const {
  if (value.dim() == 0) return mesh_.world().rank() == 0;
  return is_divided || mesh_.coordinate(parallel::Axis::tensor) == 0;
}

void BlockTrace::note(int64_t micro_batch, const std::string& block, const std::string& name, const Tensor& value,
                      int64_t first_sample, const std::optional<memory::Block::Part>& part) {
  of_block_[{micro_batch, block}].push_back(entries_.size());
  auto& numbers = entries_.emplace_back(Entry{{step_, micro_batch, block, name}, false, value.dim() > 1}).numbers;
  if (!counts_here(value, part.has_value())) return;
  const at::NoGradGuard no_grad;
  const auto plain = value.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* values = plain.const_data_ptr<double>();
  const int64_t samples = plain.dim() == 0 ? 1 : plain.size(0), each = samples > 0 ? plain.numel() / samples : 0;
  const Places places(plain, part);
  for (int64_t n = 0; n < samples; ++n) {
    const auto sample = static_cast<uint64_t>(plain.dim() == 0 ? 0 : first_sample + n);
    for (int64_t i = 0; i < each; ++i) count_in(numbers, *values++, sample, static_cast<uint64_t>(places(i)));
  }
  numbers.count += plain.numel();
}

void BlockTrace::ran(const memory::Block& block, const memory::Flow& output) {
  const auto context = current_context();
  const bool is_again = !context.has_new_images();  // recomputed, or of a step that is taken back
  if (context.step < 0 || is_again || !at::GradMode::is_enabled()) return;
  if (first_block_.empty()) first_block_ = block.name;
  if (block.name == first_block_ && last_block_ != first_block_) ++micro_batch_;
  last_block_ = block.name;
  const std::pair key(micro_batch_, block.name);
  ++times_[key];
  for (const size_t i : of_block_[key]) entries_[i].is_part = true;
  for (size_t i = 0; i < output.size(); ++i) {
    const auto suffix = i == 0 ? "" : "." + std::to_string(i);
    note(micro_batch_, block.name, "output" + suffix, output[i], context.first_sample, block.output);
    follow_gradient(block, suffix, output[i], context.first_sample);
  }
}

void BlockTrace::follow_gradient(const memory::Block& block, const std::string& suffix, const Tensor& output,
                                 int64_t first_sample) {
  if (!output.requires_grad()) return;
  const std::pair key(micro_batch_, block.name);
  output.register_hook([this, key, name = "gradient" + suffix, part = block.output, first_sample, step = step_,
                        times = times_[key]](const Tensor& gradient) {
    if (step == step_ && times == times_[key]) note(key.first, key.second, name, gradient, first_sample, part);
  });
}

/// Without those of parts; shards are one micro-batch, whatever the rank that works on them.
Trace BlockTrace::told() const {
  Trace told;
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (const auto& [numbers, is_part, has_samples] : entries_) {
    if (is_part || (in_shards_ && !has_samples)) continue;
    const auto [place, is_new] = places.try_emplace({numbers.block, numbers.tensor}, told.size());
    if (!in_shards_ || is_new) {
      told.push_back(numbers);
      if (in_shards_) told.back().micro_batch = 0;
      continue;
    }
    add(told[place->second], numbers);
  }
  return told;
}

void BlockTrace::end_step() {
  auto numbers = told();
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(numbers.size());
  const auto sums = at::zeros({count, 3}, at::kDouble), largest = at::zeros({count}, at::kDouble);
  const auto whole = at::zeros({count, 2}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const auto& own = numbers[static_cast<size_t>(i)];
    sums[i][0] = own.sum, sums[i][1] = own.squares, sums[i][2] = own.projection;
    largest[i] = own.largest;
    whole[i][0] = std::bit_cast<int64_t>(own.hash), whole[i][1] = own.count;
  }
  auto& world = mesh_.world();
  const auto reduce = [&](const Tensor& numbers, comm::Reduce op) {
    const auto there = numbers.to(device_);
    comm::all_reduce_(there, world, op);
    numbers.copy_(there);
  };
  reduce(sums, comm::Reduce::sum);
  reduce(largest, comm::Reduce::max);
  reduce(whole, comm::Reduce::sum);
  for (int64_t i = 0; i < count; ++i) {
    auto& own = numbers[static_cast<size_t>(i)];
    own.sum = sums[i][0].item<double>(), own.squares = sums[i][1].item<double>();
    own.projection = sums[i][2].item<double>(), own.largest = largest[i].item<double>();
    own.hash = std::bit_cast<uint64_t>(whole[i][0].item<int64_t>()), own.count = whole[i][1].item<int64_t>();
  }
  if (sink_ && world.rank() == 0) sink_(numbers);
}

void add(BlockNumbers& numbers, const BlockNumbers& more) {
  numbers.count += more.count;
  numbers.hash += more.hash;
  numbers.sum += more.sum;
  numbers.squares += more.squares;
  numbers.largest = std::max(numbers.largest, more.largest);
  numbers.projection += more.projection;
}

namespace {

double relative(double a, double b, double scale) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b) / (scale > 0 ? scale : 1);
  return std::isfinite(difference) ? difference : HUGE_VAL;
}

/// One value for each block and tensor of a step, in the order of the first.
Trace over_micro_batches(const Trace& trace) {
  Trace merged;
  std::map<std::tuple<int64_t, std::string, std::string>, size_t> places;
  for (const auto& one : trace) {
    if (one.count <= 1) continue;  // a loss, of each micro-batch
    const auto [place, is_new] = places.try_emplace({one.step, one.block, one.tensor}, merged.size());
    if (is_new) {
      merged.push_back(one);
      merged.back().micro_batch = kAllMicroBatches;
    } else {
      add(merged[place->second], one);
    }
  }
  return merged;
}

using Key = std::tuple<int64_t, int64_t, std::string, std::string>;
Key key_of(const BlockNumbers& one) { return {one.step, one.micro_batch, one.block, one.tensor}; }

int64_t micro_batches(const Trace& trace) {
  int64_t most = 0;
  for (const auto& one : trace) most = std::max(most, one.micro_batch + 1);
  return most;
}

}  // namespace

double difference(const BlockNumbers& a, const BlockNumbers& b) {
  const double norm = std::sqrt(std::max(a.squares, b.squares));
  double most = relative(a.projection, b.projection, norm);
  most = std::max(most, relative(std::sqrt(a.squares), std::sqrt(b.squares), norm));
  most = std::max(most, relative(a.sum, b.sum, norm * std::sqrt(static_cast<double>(std::max(a.count, b.count)))));
  return std::max(most, relative(a.largest, b.largest, std::max(a.largest, b.largest)));
}

std::optional<TraceDifference> first_difference(Trace one, Trace other, bool have_same_samples,
                                                std::optional<double> tolerance) {
  if (!have_same_samples || micro_batches(one) != micro_batches(other)) {
    if (micro_batches(one) > 1 || micro_batches(other) > 1) {
      one = over_micro_batches(one);
      other = over_micro_batches(other);
    }
  }
  std::map<Key, const BlockNumbers*> found, own;
  for (const auto& numbers : other) found[key_of(numbers)] = &numbers;
  for (const auto& numbers : one) own[key_of(numbers)] = &numbers;
  const auto lacking = std::ranges::find_if(other, [&](const auto& its) { return !own.contains(key_of(its)); });
  const int64_t last = lacking == other.end() ? std::numeric_limits<int64_t>::max() : lacking->step;
  for (const auto& numbers : one) {
    if (numbers.step > last) break;
    const auto at = found.find(key_of(numbers));
    if (at == found.end()) return TraceDifference{numbers, std::nullopt};
    const auto& its = *at->second;
    if (numbers.count != its.count) return TraceDifference{numbers, std::nullopt};
    if (!tolerance) {
      if (numbers.hash != its.hash) return TraceDifference{numbers, 0.0};
    } else if (const double by = difference(numbers, its); !(by <= *tolerance)) {
      return TraceDifference{numbers, by};
    }
  }
  return lacking == other.end() ? std::nullopt : std::optional(TraceDifference{*lacking, std::nullopt});
}

}  // namespace tandem::train
