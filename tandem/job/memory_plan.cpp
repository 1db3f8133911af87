#include "tandem/job/memory_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/split.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/table.h"
#include "tandem/models/backbone.h"

namespace tandem::job {
namespace {

int64_t& of(CategoryBytes& bytes, Category category) { return bytes[static_cast<size_t>(category)]; }
int64_t of(const CategoryBytes& bytes, Category category) { return bytes[static_cast<size_t>(category)]; }

struct Probe {
  int64_t forward = 0, kept = 0, backward = 0;
};

/// One step of the backbone alone. `has_buckets`: gradients are allocated before backward begins.
Probe probe_backbone(models::Backbone& backbone, const Tensor& images, bool has_buckets, memory::ProbeScope& book) {
  const auto activations = [](const CategoryBytes& bytes) { return of(bytes, Category::activations); };
  {
    const CategoryScope scope(Category::gradients);
    for (auto& parameter : backbone.parameters()) {
      if (has_buckets) parameter.mutable_grad() = at::zeros_like(parameter.detach());
    }
  }
  const CategoryScope scope(Category::activations);
  book.reset_peak();
  Probe probe;
  const auto output = [&] { return backbone.forward(images.to(backbone.parameters()[0].scalar_type())); }();
  const auto after = book.account();
  probe.forward = activations(after.at_peak);
  probe.kept = activations(after.live);
  const auto gradient = at::ones_like(output);
  book.reset_peak();
  output.backward(gradient);
  probe.backward = activations(book.account().at_peak);
  for (auto& parameter : backbone.parameters()) parameter.mutable_grad().reset();
  return probe;
}

/// Batch sizes of the two probes: close to the rank's own batch size, as far as that is fast. (Batch normalisation
/// needs two images.)
std::array<int64_t, 2> probes_of(const DataShape& shape, int64_t own) {
  const int64_t pixels = shape.image[1] * shape.image[2];
  const int64_t most = pixels <= 64 * 64 ? 32 : pixels <= 256 * 256 ? 8 : 4;
  const int64_t second = std::clamp<int64_t>(own, 4, most);
  return {second / 2, second};
}

BackboneMemory measure_backbone(const Job& job, const DataShape& shape, int64_t own) {
  BackboneMemory result;
  if (job.model.is_identity) return result;
  memory::ProbeScope book;
  const auto backbone = make_backbone(job, shape.image);
  for (const auto& parameter : backbone->parameters()) result.parameters += static_cast<int64_t>(parameter.nbytes());
  for (const auto& buffer : backbone->buffers()) result.buffers += static_cast<int64_t>(buffer.nbytes());
  result.num_parameters = static_cast<int64_t>(backbone->parameters().size());
  const auto counts = probes_of(shape, own);
  std::array<Probe, 2> probes;
  for (size_t i = 0; i < 2; ++i) {
    const auto images = at::zeros({counts[i], shape.image[0], shape.image[1], shape.image[2]});
    probes[i] = probe_backbone(*backbone, images, job.parallel.ranks > 1, book);
  }
  const auto line = [&](int64_t Probe::*member) {
    const auto first = static_cast<double>(probes[0].*member), second = static_cast<double>(probes[1].*member);
    const double an_image = (second - first) / static_cast<double>(counts[1] - counts[0]);
    return BackboneMemory::Line{first - an_image * static_cast<double>(counts[0]), an_image};
  };
  result.forward = line(&Probe::forward);
  result.kept = line(&Probe::kept);
  result.backward = line(&Probe::backward);
  return result;
}

int64_t num_states(const train::OptimizerOptions& optimizer) {
  if (optimizer.kind == train::OptimizerKind::adamw) return 2;
  return optimizer.momentum > 0 ? 1 : 0;
}

int threads_of(const Parallel& parallel) {
  if (parallel.threads > 0) return parallel.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / parallel.ranks);
}

}  // namespace

std::string counts_text(const std::vector<int64_t>& counts) {
  constexpr size_t kFew = 8;
  std::string text;
  for (size_t i = 0, end; i < counts.size(); i = end) {
    end = i + 1;
    while (counts.size() > kFew && end < counts.size() && counts[end] == counts[i]) ++end;
    text += (text.empty() ? "" : " ") + format_count(counts[i]);
    if (end - i > 1) text += " x " + std::to_string(end - i);
  }
  return text;
}

int64_t BackboneMemory::Line::at(int64_t images) const {
  return std::llround(constant + an_image * static_cast<double>(images));
}

MemoryPlan::MemoryPlan(const Job& job, const DataShape& shape)
    : job_(job),
      ranks_(job.parallel.ranks),
      shape_(shape),
      images_(comm::split_sizes(job.training.batch, ranks_)),
      backbone_(measure_backbone(job, shape, images_[0])) {
  job_.head.options.classes = shape.classes;
}

classifier::HeadLoad MemoryPlan::load_of(const Head& head, int rank, int64_t own_classes) const {
  return {.own_classes = own_classes,
          .samples = job_.training.batch,
          .ranks = ranks_,
          .is_root = rank == 0,
          .threads = threads_of(job_.parallel),
          .steps_in_backward = head.steps_in_backward,
          .num_states = num_states(job_.optimizer),
          .moves_late = head.moves_all_rows};
}

CategoryBytes MemoryPlan::bytes_of(const Head& of_head, int rank, const classifier::HeadLoad& load) const {
  const auto head = classifier::head_memory(of_head.options, load);
  const int64_t images = images_[rank], pixels = shape_.image[0] * shape_.image[1] * shape_.image[2];
  auto bytes = head;
  of(bytes, Category::parameters) += backbone_.parameters;
  of(bytes, Category::optimizer) += load.num_states * backbone_.parameters;
  if (load.num_states == 2) of(bytes, Category::optimizer) += backbone_.num_parameters * int64_t{sizeof(float)};
  const int64_t copies = job_.training.skip_nonfinite > 0 ? 2 : 1;  // one to restore if the step is skipped
  of(bytes, Category::buffers) =
      copies * backbone_.buffers + (job_.data.prefetch + 1) * images * (pixels * int64_t{sizeof(float)} + 8);
  if (ranks_ > 1) of(bytes, Category::gradients) += backbone_.parameters;  // the buckets
  if (job_.model.is_identity) return bytes;

  auto in_head = bytes, in_forward = bytes, in_backward = bytes;
  of(in_head, Category::activations) += backbone_.kept.at(images);
  of(in_forward, Category::activations) = backbone_.forward.at(images);
  of(in_backward, Category::activations) = backbone_.backward.at(images);
  of(in_forward, Category::gradients) -= of(head, Category::gradients);
  if (load.steps_in_backward) in_backward[size_t(Category::gradients)] -= of(head, Category::gradients);
  of(in_forward, Category::communication) = of(in_backward, Category::communication) = 0;
  return std::max({in_head, in_backward, in_forward},
                  [](const auto& a, const auto& b) { return total_of(a) < total_of(b); });
}

CategoryBytes MemoryPlan::rank(int rank, int64_t own_classes) const {
  return bytes_of(job_.head, rank, load_of(job_.head, rank, own_classes));
}

std::optional<int64_t> MemoryPlan::limit(int rank) const {
  return job_.memory.is_limited() ? std::optional(job_.memory.limits[rank]) : std::nullopt;
}

std::optional<int64_t> MemoryPlan::most_classes(int rank) const {
  if (!job_.memory.is_limited()) return std::nullopt;
  const int64_t limit = job_.memory.limits[rank];
  int64_t fits = 0, too_many = int64_t{1} << 40;
  if (total_of(this->rank(rank, 0)) > limit) return 0;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (total_of(this->rank(rank, middle)) <= limit ? fits : too_many) = middle;
  }
  return fits;
}

std::vector<int64_t> MemoryPlan::counts() const {
  if (!job_.memory.is_limited()) return comm::split_sizes(shape_.classes, ranks_);
  std::vector<double> rooms;
  int64_t all = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const int64_t most = most_classes(rank).value(), rest = total_of(this->rank(rank, 0));
    if (most == 0 && rest > limit(rank).value()) {
      throw SettingsError("memory.limit of rank " + std::to_string(rank) + " is " + format_bytes(limit(rank).value()) +
                              ", wanted at least " + format_bytes(rest) + ", which the job needs without any class",
                          "give more memory, or make train.batch smaller");
    }
    all += most;
    rooms.push_back(static_cast<double>(most));
  }
  if (all < shape_.classes) {
    throw SettingsError("head.classes is " + std::to_string(shape_.classes) + ", wanted at most " +
                            std::to_string(all) + " with this memory.limit",
                        "add ranks or memory, or see the forms of tandem plan");
  }
  return comm::split_by_weight(shape_.classes, rooms);
}

std::vector<MemoryPlan::Form> MemoryPlan::forms() const {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max() / 2;
  const auto even = comm::split_sizes(shape_.classes, ranks_);
  std::vector<Form> forms;
  const auto add = [&](const std::string& name, const Head& head, bool whole) {
    Form form{name, {}};
    for (int rank = 0; rank < ranks_; ++rank) {
      auto load = load_of(head, rank, whole ? shape_.classes : even[rank]);
      if (whole) load.samples = images_[rank], load.ranks = 1;
      form.ranks.push_back(bytes_of(head, rank, load));
    }
    forms.push_back(std::move(form));
  };
  auto head = job_.head;
  head.steps_in_backward = head.moves_all_rows = head.options.naive = false;
  head.options.sampling.reset();
  const auto blocks = head.options.blocks;
  head.options.naive = true;
  add("naive", head, false);
  head.options.naive = false;
  head.options.blocks.keep_bytes = kAll;
  add("data_parallel", head, true);
  add("sharded", head, false);
  head.options.blocks = blocks;
  add("blocks", head, false);
  head.steps_in_backward = true;
  add("fused_update", head, false);
  head.options.sampling = job_.head.options.sampling.value_or(classifier::Sampling{0.1});
  head.moves_all_rows = job_.head.moves_all_rows;
  add("sampled", head, false);
  return forms;
}

}  // namespace tandem::job
