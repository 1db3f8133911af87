#include "tandem/job/memory_plan.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/base/context.h"
#include "tandem/base/cores.h"
#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/comm/process_group.h"
#include "tandem/comm/split.h"
#include "tandem/job/detail/images_at_once.h"
#include "tandem/job/parts.h"
#include "tandem/memory/meter.h"
#include "tandem/memory/rehearsal.h"
#include "tandem/models/backbone.h"

namespace tandem::job {
namespace {

int64_t& of(CategoryBytes& bytes, Category category) { return bytes[static_cast<size_t>(category)]; }
int64_t of(const CategoryBytes& bytes, Category category) { return bytes[static_cast<size_t>(category)]; }

/// The chain of a backbone at `images` images, in a book of its own.
memory::Composition rehearse_backbone(const models::Backbone& backbone, const Job& job, const DataShape& shape,
                                      int64_t images) {
  const auto batch = at::zeros({images, shape.image[0], shape.image[1], shape.image[2]}, job.training.precision.type);
  const auto& training = job.training;
  const bool has_places = job.parallel.ranks > 1 || training.accumulate > 1 || training.shards > 0;  // for gradients
  memory::RehearsalOptions options;
  for (const auto& parameter : backbone.parameters()) {
    if (has_places && parameter.requires_grad()) options.given_away.push_back(parameter);
  }
  std::vector<memory::BlockRecord> records;
  detail::name_single_images(job, [&] { records = memory::rehearse(backbone.chain(), {batch}, options); });
  return memory::compose(records, {});
}

/// At the batch itself; where that needs too much here, at two images, multiplied.
BackboneMemory measure_backbone(const Job& job, const DataShape& shape, int64_t images) {
  constexpr int64_t kFew = 2;  // batch normalisation needs two
  BackboneMemory result;
  const memory::ProbeScope book;
  const auto group = comm::make_rehearsal_group(0, job.parallel.ranks, job.parallel.transport);
  auto mesh = make_mesh(job, *group);
  const auto backbone = make_backbone(job, shape.image, statistics_exchange(job, mesh));
  for (const auto& parameter : backbone->parameters()) {
    const auto bytes = static_cast<int64_t>(parameter.nbytes());
    result.parameters += bytes;
    if (!parameter.requires_grad()) continue;
    result.trained += bytes;
    ++result.num_trained;
  }
  for (const auto& buffer : backbone->buffers()) result.buffers += static_cast<int64_t>(buffer.nbytes());
  auto step = rehearse_backbone(*backbone, job, shape, std::min(images, kFew));
  const auto times = static_cast<double>(images) / static_cast<double>(std::min(images, kFew));
  result.is_exact = times == 1 || static_cast<double>(step.backward) * times < static_cast<double>(free_memory()) / 2;
  if (result.is_exact && times != 1) step = rehearse_backbone(*backbone, job, shape, images);
  const auto at_images = [&](int64_t bytes) {
    return result.is_exact ? bytes : std::llround(static_cast<double>(bytes) * times);
  };
  result.block = block_name(step.block);
  result.forward = at_images(step.forward);
  result.saved = at_images(step.saved);
  result.backward = at_images(step.backward);
  return result;
}

std::vector<int64_t> images_of_ranks(const Job& job) {
  const int ranks = job.parallel.ranks;
  const auto shares = job.parallel.shares(ranks).of(job.training.batch);
  std::vector<int64_t> images;
  for (int rank = 0; rank < ranks; ++rank) images.push_back(shares[job.parallel.rank_of_batch(rank, ranks).rank]);
  return images;
}

int64_t num_states(const train::OptimizerOptions& optimizer) {
  if (optimizer.kind == train::OptimizerKind::adamw) return 2;
  return optimizer.momentum > 0 ? 1 : 0;
}

}  // namespace

int threads_of(const Parallel& parallel) {
  if (parallel.threads > 0) return parallel.threads;
  return default_threads(parallel.ranks);
}

int64_t free_memory() { return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

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

MemoryPlan::MemoryPlan(const Job& job, const DataShape& shape)
    : job_(job),
      ranks_(job.parallel.ranks),
      shape_(shape),
      images_(images_of_ranks(job)),
      larger_(measure_backbone(job, shape, micro_images(0))),
      smaller_(micro_images(last_worker()) == micro_images(0)
                   ? larger_
                   : measure_backbone(job, shape, micro_images(last_worker()))),
      idle_(larger_) {
  idle_.forward = idle_.saved = idle_.backward = 0;
  job_.head.options.classes = shape.classes;
}

int MemoryPlan::last_worker() const { return ranks_ - 1 - job_.parallel.shares(ranks_).idle; }

const BackboneMemory& MemoryPlan::backbone(int rank) const {
  if (images_[rank] == 0) return idle_;
  return micro_images(rank) == micro_images(0) ? larger_ : smaller_;
}

int64_t MemoryPlan::micro_images(int rank) const {
  return comm::split_sizes(images_[rank], static_cast<int>(job_.training.micro_batches(ranks_))).front();
}

int64_t MemoryPlan::micro_batch() const {
  int64_t images = 0;
  for (int rank = 0; rank < ranks_; ++rank) images += micro_images(rank);
  return images;
}

classifier::HeadLoad MemoryPlan::load_of(const Head& head, int rank, int64_t own_classes) const {
  const bool is_whole = head.form->is_whole;
  return {.own_classes = is_whole ? shape_.classes : own_classes,
          .samples = is_whole ? micro_images(rank) : micro_batch(),
          .ranks = is_whole ? 1 : ranks_,
          .is_root = rank == 0,
          .threads = threads_of(job_.parallel),
          .steps_in_backward = head.steps_in_backward,
          .num_states = num_states(job_.optimizer),
          .moves_late = head.moves_all_rows};
}

/// Servers apart or the others: of a mesh with shards those that hold them.
bool MemoryPlan::updates_backbone(int rank) const {
  const bool has_servers = job_.parallel.shares(ranks_).idle > 0, is_server = rank > last_worker();
  return !has_servers || is_server == (job_.parallel.mesh(ranks_).shard > 1);
}

CategoryBytes MemoryPlan::bytes_of(const Head& of_head, int rank, const classifier::HeadLoad& load) const {
  const auto head = classifier::head_memory(of_head.options, load);
  const auto& backbone = this->backbone(rank);
  auto bytes = head;
  of(bytes, Category::parameters) += backbone.parameters;
  const auto& parallel = job_.parallel;
  const int servers = parallel.shares(ranks_).idle, shard = parallel.mesh(ranks_).shard;
  const int64_t shards = servers > 0 ? std::min(servers, shard) : shard;
  if (updates_backbone(rank)) {
    of(bytes, Category::optimizer) += load.num_states * ((backbone.trained + shards - 1) / shards);
    if (load.num_states == 2) of(bytes, Category::optimizer) += backbone.num_trained * int64_t{sizeof(float)};
  }
  const int64_t copies = job_.training.may_leave_out() ? 2 : 1;  // one to restore
  of(bytes, Category::buffers) =
      copies * backbone.buffers +
      data::loader_memory(training_loader_options(job_, rank, ranks_), shape_.image, job_.data.prefetch + 1);
  const int64_t replicated = backbone.trained + (of_head.form->is_whole ? of(head, Category::parameters) : 0);
  const auto held =
      parallel.strategy->bytes(replicated, parallel.rank_of_batch(rank, ranks_), parallel.strategy_options);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] += held[i];
  if (job_.training.accumulate > 1 && ranks_ == 1) of(bytes, Category::gradients) += backbone.trained;

  auto in_head = bytes, in_forward = bytes, in_backward = bytes;
  of(in_head, Category::activations) += backbone.saved;
  of(in_forward, Category::activations) = backbone.forward;
  of(in_backward, Category::activations) = backbone.backward;
  of(in_forward, Category::gradients) -= of(head, Category::gradients);
  if (load.steps_in_backward) in_backward[size_t(Category::gradients)] -= of(head, Category::gradients);
  of(in_forward, Category::communication) = of(in_backward, Category::communication) = 0;
  return std::max({in_head, in_backward, in_forward},
                  [](const auto& a, const auto& b) { return total_of(a) < total_of(b); });
}

CategoryBytes MemoryPlan::rank(int rank, int64_t own_classes) const {
  return bytes_of(job_.head, rank, load_of(job_.head, rank, own_classes));
}

RankPeak MemoryPlan::peak(int rank, int64_t own_classes) const {
  const auto bytes = this->rank(rank, own_classes), without = this->rank(rank, 0);
  const auto activations = of(bytes, Category::activations) - of(without, Category::activations);
  return {total_of(bytes), activations > 0 || backbone(rank).block.empty() ? kHeadBlock : backbone(rank).block};
}

std::vector<RankPeak> MemoryPlan::peaks(const std::vector<int64_t>& counts) const {
  std::vector<RankPeak> all;
  for (size_t rank = 0; rank < counts.size(); ++rank) all.push_back(peak(static_cast<int>(rank), counts[rank]));
  return all;
}

std::optional<int64_t> MemoryPlan::limit(int rank) const {
  return job_.memory.is_limited() ? std::optional(job_.memory.limits[rank]) : std::nullopt;
}

std::optional<int64_t> MemoryPlan::most_classes(int rank, int64_t beside) const {
  if (!job_.memory.is_limited()) return std::nullopt;
  if (!takes_classes(rank)) return 0;
  const int64_t limit = job_.memory.limits[rank] - beside;
  int64_t fits = 0, too_many = int64_t{1} << 40;
  if (total_of(this->rank(rank, 0)) > limit) return 0;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (total_of(this->rank(rank, middle)) <= limit ? fits : too_many) = middle;
  }
  return fits;
}

std::vector<int64_t> MemoryPlan::even_counts() const { return job::even_counts(job_, shape_.classes, ranks_); }

std::vector<MemoryPlan::Form> MemoryPlan::forms() const {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max() / 2;
  const auto even = even_counts();
  std::vector<Form> forms;
  auto head = job_.head;
  const auto add = [&](const std::string& name, const char* form_name) {
    head.form = &head_form(form_name);
    if (!may_split() && !head.form->is_whole) return;
    head.options.naive = head.form->gathers_scores;
    Form form{name, {}};
    for (int rank = 0; rank < ranks_; ++rank) {
      form.ranks.push_back(bytes_of(head, rank, load_of(head, rank, even[rank])));
    }
    forms.push_back(std::move(form));
  };
  head.steps_in_backward = head.moves_all_rows = false;
  head.options.sampling.reset();
  const auto blocks = head.options.blocks;
  add("naive", "naive");
  head.options.blocks.keep_bytes = kAll;
  add("data_parallel", "replicated");
  add("sharded", "sharded");
  head.options.blocks = blocks;
  add("blocks", "sharded");
  head.steps_in_backward = true;
  add("fused_update", "sharded");
  head.options.sampling = job_.head.options.sampling.value_or(classifier::Sampling{0.1});
  head.moves_all_rows = job_.head.moves_all_rows;
  add("sampled", "sharded");
  return forms;
}

}  // namespace tandem::job
