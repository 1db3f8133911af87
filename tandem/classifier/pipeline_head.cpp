#include "tandem/classifier/pipeline_head.h"

#include <ATen/ATen.h>

#include "tandem/classifier/detail/row_losses.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/split.h"

namespace tandem::classifier {

using parallel::Axes;
using parallel::Axis;
using parallel::kBatchAxes;

namespace {

constexpr Axes kPipeline = {Axis::pipeline};

/// Tags above those of a pipeline's own messages, which may go through the same group.
constexpr int kFirstTag = 1 << 19;
int tag_of_features(int i) { return kFirstTag + 4 * i; }
int tag_of_numbers(int i) { return tag_of_features(i) + 1; }
int tag_of_sums(int i) { return tag_of_features(i) + 2; }
int tag_of_totals(int i) { return tag_of_features(i) + 3; }

Tensor joined(std::vector<Tensor> parts) { return parts.size() == 1 ? std::move(parts[0]) : at::cat(parts); }

}  // namespace

/// Of a micro-batch, from the first that is known of it to its class gradient.
struct PipelineHead::State {
  Tensor features;  // of this home
  Tensor labels;    // of this home, then of all
  std::unique_ptr<PartLoss> loss;
  std::vector<comm::Handle> to_homes;  // what a home has sent about the rows of others
  Tensor term, gradient;               // of this home
  Tensor log_sum;                      // of this home, then of all
};

PipelineHead::PipelineHead(const ClassShardedHead& head, Axes over, int stage, parallel::Mesh& mesh,
                           std::vector<HeadRows> micro_batches, bool is_imagined)
    : head_(head),
      group_(mesh.group(over)),
      alike_(mesh.group(over - kBatchAxes - kPipeline)),
      micro_batches_(std::move(micro_batches)),
      parts_(mesh.sizes().size(over - kBatchAxes - kPipeline)),
      is_imagined_(is_imagined) {
  const auto& sizes = mesh.sizes();
  const auto ranks = sizes.ranks_along(over, mesh.world().rank());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (sizes.coordinate(Axis::pipeline, ranks[i]) != stage) continue;
    if (static_cast<int>(i) == group_.rank()) own_home_ = homes_.size();
    homes_.push_back({static_cast<int>(i), sizes.number_along(kBatchAxes, ranks[i]),
                      sizes.number_along(over - kBatchAxes - kPipeline, ranks[i])});
  }
}

PipelineHead::~PipelineHead() = default;

PipelineHead::Range PipelineHead::rows_of(int i, size_t home) const {
  int64_t begin = 0;
  for (size_t h = 0;; ++h) {
    const auto& [rank, batch_rank, part] = homes_[h];
    const auto size = comm::split_sizes(micro_batches_[i].sizes[batch_rank], parts_)[part];
    if (h == home) return {begin, begin + size};
    begin += size;
  }
}

/// Of the rows of the ranks with the same features.
Tensor PipelineHead::own_part(const Tensor& rows) const {
  const auto [begin, end] = comm::split_range(rows.size(0), parts_, homes_[*own_home_].part);
  return rows.slice(0, begin, end);
}

void PipelineHead::send(std::vector<Tensor> tensors, int to, int tag, std::vector<comm::Handle>& handles) {
  if (is_imagined_) return;
  for (auto& tensor : tensors) handles.push_back(comm::send_message({std::move(tensor)}, to, group_, tag));
}

Tensor PipelineHead::receive(int from, int tag, at::IntArrayRef sizes, at::ScalarType type) {
  if (!is_imagined_) return comm::receive_message(from, group_, tag).tensor;
  const auto device = type == at::kLong ? c10::Device(c10::DeviceType::CPU) : head_.weight().device();
  return at::zeros(sizes, at::device(device).dtype(type));
}

void PipelineHead::end_forward(int i, const Tensor& features) {
  auto& state = states_[i];
  state.features = head_.inputs(own_part(features));
  state.labels = own_part(micro_batches_[i].labels).cpu();
}

std::vector<comm::Handle> PipelineHead::send_features(int i) {
  const auto& state = states_.at(i);
  const auto features = state.features.contiguous(), labels = state.labels.contiguous();
  std::vector<comm::Handle> handles;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank != group_.rank()) send({features, labels}, rank, tag_of_features(i), handles);
  }
  return handles;
}

/// Of all homes. Those of this one are here.
void PipelineHead::take_features(int i) {
  auto& state = states_[i];
  const auto& weight = head_.weight();
  std::vector<Tensor> features, labels;
  for (size_t home = 0; home < homes_.size(); ++home) {
    const int64_t rows = rows_of(i, home).size();
    const int from = homes_[home].rank, tag = tag_of_features(i);
    const bool is_here = home == own_home_;
    features.push_back(is_here ? std::move(state.features)
                               : receive(from, tag, {rows, weight.size(1)}, weight.scalar_type()));
    labels.push_back(is_here ? std::move(state.labels) : receive(from, tag, {rows}, at::kLong));
  }
  const auto& options = head_.options();
  state.labels = joined(std::move(labels));
  state.loss = std::make_unique<PartLoss>(joined(std::move(features)), weight, state.labels, head_.first_class(),
                                          options.scoring, options.blocks);
}

void PipelineHead::receive_features(int i) { take_features(i); }

void PipelineHead::scores(int i) {
  if (is_home()) take_features(i);
  auto& state = states_.at(i);
  state.loss->score();
  if (is_home()) state.to_homes = send_scores(i);
}

std::vector<comm::Handle> PipelineHead::send_scores(int i) {
  auto& loss = *states_.at(i).loss;
  std::vector<std::pair<int, PartScores>> parts;
  for (size_t home = 0; home < homes_.size(); ++home) {
    const auto [begin, end] = rows_of(i, home);
    if (home != own_home_) parts.emplace_back(homes_[home].rank, loss.scores_of(begin, end));
  }
  const auto [begin, end] = is_home() ? rows_of(i, *own_home_) : Range{0, 0};
  loss.release(begin, end);
  std::vector<comm::Handle> handles;
  for (auto& [rank, part] : parts) send_part(std::exchange(part, {}), rank, i, handles);
  return handles;
}

void PipelineHead::send_part(PartScores part, int to, int i, std::vector<comm::Handle>& handles) {
  std::vector<Tensor> numbers;
  numbers.push_back(std::exchange(part.numbers, {}));
  send(std::move(numbers), to, tag_of_numbers(i), handles);
  send(std::move(part).sums(), to, tag_of_sums(i), handles);
}

PartScores PipelineHead::receive_part(int from, int i, int64_t rows, Tensor numbers) {
  const int64_t dim = head_.weight().size(1);
  const auto type = head_.weight().scalar_type();
  const int tag = tag_of_sums(i);
  PartScores part{.numbers = std::move(numbers)};
  part.of_scores = receive(from, tag, {rows, dim}, type);
  part.target_rows = receive(from, tag, {0}, at::kLong);
  part.of_targets = receive(from, tag, {0, dim}, type);
  if (head_.options().scoring.smoothing > 0) part.evenly = receive(from, tag, {rows, dim}, type);
  return part;
}

Tensor PipelineHead::shares(const State& state) const {
  return detail::shares_of(state.labels, state.loss->counted(), head_.weight().options().requires_grad(false));
}

void PipelineHead::receive_scores(int i) {
  auto& state = states_.at(i);
  const auto& options = head_.options();
  const double smoothing = options.scoring.smoothing;
  const auto [begin, end] = rows_of(i, *own_home_);
  auto own = state.loss->scores_of(begin, end);
  state.loss->release(0, 0);
  std::vector<Tensor> numbers;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const bool is_here = rank == group_.rank();
    numbers.push_back(
        is_here ? own.numbers
                : receive(rank, tag_of_numbers(i), {smoothing > 0 ? 4 : 3, end - begin}, head_.weight().scalar_type()));
  }
  PartsMerge merge(at::stack(numbers), state.labels.slice(0, begin, end), shares(state).slice(0, begin, end), smoothing,
                   options.classes);
  for (int rank = 0; rank < group_.size(); ++rank) {
    const bool is_here = rank == group_.rank();
    const auto part = is_here ? std::exchange(own, {}) : receive_part(rank, i, end - begin, std::move(numbers[rank]));
    merge.add(part, micro_batches_[i].share);
  }
  state.term = merge.loss();
  state.log_sum = merge.log_sum();
  state.gradient = merge.take_gradient();
}

std::vector<comm::Handle> PipelineHead::send_totals(int i) {
  auto& state = states_.at(i);
  auto handles = std::exchange(state.to_homes, {});
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank != group_.rank()) send({state.log_sum}, rank, tag_of_totals(i), handles);
  }
  return handles;
}

/// Of all homes.
void PipelineHead::take_totals(int i) {
  auto& state = states_.at(i);
  std::vector<Tensor> totals;
  for (size_t home = 0; home < homes_.size(); ++home) {
    totals.push_back(home == own_home_ ? std::move(state.log_sum)
                                       : receive(homes_[home].rank, tag_of_totals(i), {rows_of(i, home).size()},
                                                 head_.weight().scalar_type()));
  }
  state.log_sum = joined(std::move(totals));
}

void PipelineHead::receive_totals(int i) { take_totals(i); }

void PipelineHead::class_gradient(int i) {
  if (is_home()) take_totals(i);
  auto& state = states_.at(i);
  state.loss->add_class_gradient(state.log_sum, shares(state).mul_(micro_batches_[i].share), head_.options().classes);
  state.loss.reset();
  state.labels.reset();
  state.log_sum.reset();
}

Tensor PipelineHead::loss(int i) const { return states_.at(i).term; }

Tensor PipelineHead::take_gradient(int i) {
  auto own = std::move(states_.at(i).gradient);
  if (const int64_t dim = head_.options().dim; own.size(1) > dim) own = own.narrow(1, 0, dim).contiguous();  // a bias
  if (parts_ == 1) return own;
  const auto& home = homes_[*own_home_];
  return comm::all_gather(own, alike_, 0, comm::split_sizes(micro_batches_[i].sizes[home.batch_rank], parts_));
}

}  // namespace tandem::classifier
