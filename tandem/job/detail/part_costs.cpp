#include "tandem/job/detail/part_costs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/base/draws.h"
#include "tandem/job/parts.h"
#include "tandem/job/sections/naming.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/models/backbone.h"

namespace tandem::job {
namespace {

constexpr int64_t kImages = 2;                        // of a forward in training
constexpr int64_t kMostImages = 16, kMostTimed = 64;  // that are rehearsed

/// What passes between two parts, and which of it requires a gradient.
struct TrackedFlow {
  memory::Flow values;
  std::vector<bool> require;

  bool requires_grad() const { return std::ranges::find(require, true) != require.end(); }

  std::vector<ValueShape> shapes() const {
    std::vector<ValueShape> shapes;
    for (size_t i = 0; i < values.size(); ++i) {
      shapes.push_back({values[i].sizes().slice(1).vec(), values[i].suggest_memory_format(), require[i]});
    }
    return shapes;
  }

  /// Without what made them.
  memory::Flow leaves() const {
    memory::Flow leaves;
    for (size_t i = 0; i < values.size(); ++i) leaves.push_back(values[i].detach().set_requires_grad(require[i]));
    return leaves;
  }

  /// Runs the part. A shortcut that it hands on is what it was.
  memory::BlockWork pass(const memory::Block& part) {
    const auto before = *this;
    const auto work = memory::work_of({{part}}, values)[0];
    bool has_gradient = before.requires_grad();
    for (const auto& parameter : memory::parameters_of(part)) has_gradient |= parameter.requires_grad();
    require.clear();
    for (const auto& value : values) {
      const auto taken = std::ranges::find_if(before.values, [&](const Tensor& x) { return x.is_same(value); });
      require.push_back(taken == before.values.end() ? has_gradient : before.require[taken - before.values.begin()]);
    }
    return work;
  }
};

/// Forward and backward: the best of some runs, of which the first makes ready.
double measured_seconds(const memory::Block& part, const memory::Flow& input) {
  constexpr int kRuns = 4;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const auto cost = memory::measure({{part}}, input)[0];
    if (i > 0) best = std::min(best, cost.forward + cost.backward);
  }
  return best;
}

/// Forward, backward and bytes of a part.
void rehearse(const memory::Block& part, const TrackedFlow& flow, CutBy by, PartCost& cost) {
  const auto record = memory::rehearse({{part}}, flow.leaves(), {.gives_gradients = true}).front();
  const bool is_timed = by == CutBy::time;
  cost.forward = is_timed ? record.forward_seconds : record.nominal_seconds;
  cost.backward = is_timed ? record.backward_seconds : 2 * record.nominal_seconds;
  cost.held_bytes = record.returned;
  int64_t live = 0, most = 0;
  for (const auto* events : {&record.forward, &record.backward}) {
    for (const auto& event : *events) {
      using What = memory::Event::What;
      if (event.what == What::allocate) live += event.bytes;
      if (event.what == What::free) live -= event.bytes;
      most = std::max(most, live);
    }
  }
  cost.block_bytes = std::max<int64_t>(0, most - record.returned);
  for (const auto& parameter : memory::parameters_of(part)) {
    cost.weight_bytes += static_cast<int64_t>(parameter.nbytes());
  }
}

/// From some images to as many as a micro-batch has.
void scale(PartCost& cost, double images) {
  cost.forward *= images;
  cost.backward *= images;
  cost.held_bytes = std::llround(static_cast<double>(cost.held_bytes) * images);
  cost.block_bytes = std::llround(static_cast<double>(cost.block_bytes) * images);
}

}  // namespace

int64_t ValueShape::numbers() const {
  int64_t numbers = 1;
  for (const auto size : sizes) numbers *= size;
  return numbers;
}

double images_of(const Job& job) {
  const auto sizes = job.parallel.mesh(job.parallel.ranks);
  const auto parts = sizes.size(parallel::kBatchAxes) * job.training.accumulate;
  return static_cast<double>(job.training.batch) / static_cast<double>(parts);
}

double seconds_of_classifier(const Job& job, double classes, double rows) {
  const double products = 2 * classes * static_cast<double>(job.model.features) * rows;
  const auto type = static_cast<double>(c10::elementSize(job.training.precision.type));
  return memory::BlockWork{.operations = products * 4 / 3, .results = 0, .weights = products / 2 / rows * type}
      .nominal_seconds();
}

std::vector<PartCost> part_costs(const Job& job, const std::array<int64_t, 3>& shape, parallel::Mesh& mesh, CutBy by,
                                 bool rehearses) {
  const memory::ProbeScope aside;
  const WithoutDraws no_draws;
  const auto& [channels, height, width] = shape;
  const auto options = at::TensorOptions(job.training.precision.type).device(job.parallel.device);
  const int64_t of_rank = std::max<int64_t>(1, std::llround(images_of(job)));
  const int64_t images = !rehearses          ? (by == CutBy::time ? of_rank : kImages)
                         : by == CutBy::time ? std::min(of_rank, kMostTimed)
                                             : std::min(of_rank, kMostImages);
  TrackedFlow flow = {{at::zeros({images, channels, height, width}, options)}, {false}};
  std::vector<PartCost> costs;
  std::vector<std::string> names;  // of all parameters
  int64_t count = 1;
  for (int64_t i = 0; i < count; ++i) {
    const auto backbone = make_backbone(job, shape, &mesh, {{i, i}});
    count = backbone->num_blocks();
    for (const auto& name : backbone->named_parameters().keys()) names.push_back(name);
    const auto parts = memory::in_parts(backbone->chain()).blocks;
    for (int64_t part = 0; part < std::ssize(parts); ++part) {
      const auto& own = parts[part];
      costs.push_back({.name = own.name + (part > 0 ? "/" + std::to_string(part) : ""),
                       .block = i,
                       .part = part,
                       .takes = flow.shapes()});
      auto& cost = costs.back();
      if (rehearses) {
        rehearse(own, flow, by, cost);
        scale(cost, images_of(job) / static_cast<double>(images));
        cost.seconds = cost.forward + cost.backward;
      } else if (by == CutBy::time) {
        cost.seconds = measured_seconds(own, flow.leaves());
      }
      const auto work = flow.pass(own);
      cost.nominal_seconds = work.times(images_of(job) / static_cast<double>(images)).nominal_seconds();
      if (by == CutBy::work && !rehearses) cost.seconds = cost.nominal_seconds;
    }
  }
  naming_settings({"model"}, [&] { models::check_frozen(job.model.freeze, names); });
  return costs;
}

int64_t num_blocks(const std::vector<PartCost>& costs) { return costs.back().block + 1; }

std::vector<int64_t> cuts_by_cost(const std::vector<PartCost>& costs, double last, int stages) {
  const auto count = std::ssize(costs);
  const bool are_few = stages > num_blocks(costs);
  std::vector<double> before(count + 1, 0);
  for (int64_t i = 0; i < count; ++i) before[i + 1] = before[i] + costs[i].seconds;
  before[count] += last;
  // slowest[s][i]: of the first i parts in s stages; from[s][i]: where the last of these begins.
  const std::vector<double> none(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<double>> slowest(stages + 1, none);
  std::vector<std::vector<int64_t>> from(stages + 1, std::vector<int64_t>(count + 1, 0));
  slowest[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int64_t i = s; i <= count; ++i) {
      for (int64_t first = s - 1; first < i; ++first) {
        if (!are_few && costs[first].part > 0) continue;
        const double now = std::max(slowest[s - 1][first], before[i] - before[first]);
        if (now < slowest[s][i]) slowest[s][i] = now, from[s][i] = first;
      }
    }
  }
  std::vector<int64_t> cuts = {count};
  for (int s = stages; s > 0; --s) cuts.push_back(from[s][cuts.back()]);
  std::ranges::reverse(cuts);
  return cuts;
}

double slower_than_nominal(const std::vector<PartCost>& costs) {
  double seconds = 0, nominal = 0;
  for (const auto& cost : costs) seconds += cost.seconds, nominal += cost.nominal_seconds;
  return nominal > 0 ? seconds / nominal : 1;
}

}  // namespace tandem::job
