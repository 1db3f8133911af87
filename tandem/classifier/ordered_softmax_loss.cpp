#include "tandem/classifier/ordered_softmax_loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <numeric>

#include "tandem/base/context.h"
#include "tandem/classifier/detail/block_softmax.h"
#include "tandem/classifier/detail/row_losses.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/split.h"
#include "tandem/memory/meter.h"

namespace tandem::classifier {
namespace {

using detail::BlockSoftmax;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr uintptr_t kAlignment = 64;  // kernels may sum in another order where memory begins elsewhere

Tensor aligned(const Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return tensor.is_contiguous() && address % kAlignment == 0 ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

/// Parts of consecutive rows.
std::vector<Tensor> cut(const Tensor& rows, std::span<const int64_t> sizes) {
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(aligned(rows.narrow(0, begin, size)));
    begin += size;
  }
  return parts;
}

/// The shards of classes that this rank holds.
struct OwnClasses {
  OwnClasses(const ShardOrder& order, const comm::ProcessGroup& group) {
    const auto all = comm::split_sizes(order.classes, static_cast<int>(order.shards));
    const int64_t each = order.shards / group.size(), before = each * group.rank();
    first = std::accumulate(all.begin(), all.begin() + before, int64_t{0});
    sizes.assign(all.begin() + before, all.begin() + before + each);
  }

  int64_t first = 0;           // id of the first class
  std::vector<int64_t> sizes;  // of each shard
};

struct KeptShards : torch::CustomClassHolder {
  comm::ProcessGroup* group = nullptr;
  Tensor weight;  // the leaf itself, whose gradient backward adds to
  int64_t classes = 0;
  std::vector<int64_t> sizes;                                       // rows of each shard of the batch
  std::vector<int64_t> class_sizes;                                 // of each own shard of the classes
  std::vector<Tensor> log_sums, shares;                             // of the rows of each shard of the batch
  std::vector<std::vector<std::unique_ptr<BlockSoftmax>>> softmax;  // by shard of the batch, then of the classes
};

/// Scores all rows with this rank's classes, and finds each shard's mean loss.
Tensor score(KeptShards& kept, const Tensor& features, const Tensor& weight, const Tensor& targets, int64_t first,
             const Scoring& scoring, const BlockOptions& blocks) {
  const auto rows = cut(features, kept.sizes), ids = cut(targets, kept.sizes),
             own = cut(weight.detach(), kept.class_sizes);
  std::vector<Tensor> packed;  // by shard of the batch: [own class shards, 3 or 4, rows]
  for (size_t batch = 0; batch < rows.size(); ++batch) {
    auto& softmax = kept.softmax.emplace_back();
    std::vector<Tensor> numbers;
    int64_t first_class = first;
    for (size_t shard = 0; shard < own.size(); ++shard) {
      softmax.push_back(
          std::make_unique<BlockSoftmax>(rows[batch], own[shard], ids[batch], first_class, scoring, blocks));
      const auto found = softmax.back()->forward(rows[batch], own[shard]);
      numbers.push_back(detail::pack(found, softmax.back()->targets()));
      first_class += kept.class_sizes[shard];
    }
    packed.push_back(at::cat(numbers));
  }
  const auto each = static_cast<int64_t>(own.size());
  const auto all = comm::all_gather(at::cat(packed, 2), *kept.group, 0, std::vector<int64_t>(kept.group->size(), each));
  std::vector<Tensor> losses;
  int64_t begin = 0;
  for (size_t batch = 0; batch < rows.size(); ++batch) {
    const auto merged = detail::merge_parts(all.narrow(2, begin, kept.sizes[batch]).contiguous());
    kept.log_sums.push_back(merged.log_sum);
    kept.shares.push_back(
        detail::shares_of(ids[batch], kept.softmax[batch][0]->targets().counted(), features.options()));
    losses.push_back(detail::mean_loss(merged, kept.shares.back(), scoring.smoothing, kept.classes));
    begin += kept.sizes[batch];
  }
  return at::stack(losses);
}

void add_in_order(Tensor& sum, const Tensor& term) {
  if (sum.defined()) {
    sum.add_(term);
  } else {
    sum = term.clone();
  }
}

/// This rank's gradient of its own rows: from every class shard's, in their order.
Tensor own_rows_gradient(const KeptShards& kept, const std::vector<Tensor>& by_rank, const Tensor& features) {
  const int64_t each = static_cast<int64_t>(kept.class_sizes.size()), own = kept.sizes[kept.group->rank()];
  std::vector<int64_t> sent;
  for (const int64_t size : kept.sizes) sent.push_back(each * size);
  const std::vector<int64_t> received(kept.group->size(), each * own);
  const CategoryScope scope(Category::communication);
  const auto all = comm::all_to_all(at::cat(by_rank), *kept.group, 0, sent, received);
  Tensor sum;
  for (int64_t shard = 0; shard < each * kept.group->size(); ++shard) {
    add_in_order(sum, all.narrow(0, shard * own, own));
  }
  return sum.view({own, features.size(1)});
}

struct OrderedLoss : torch::autograd::Function<OrderedLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& features, const Tensor& weight, const Tensor& targets,
                        std::vector<int64_t> sizes, const ShardOrder& order, const Scoring& scoring,
                        comm::ProcessGroup* group, const BlockOptions& blocks) {
    const OwnClasses own(order, *group);
    const auto kept = c10::make_intrusive<KeptShards>();
    kept->group = group;
    kept->weight = weight;
    kept->classes = order.classes;
    kept->sizes = std::move(sizes);
    kept->class_sizes = own.sizes;
    Tensor all_features, all_targets;
    {
      const CategoryScope scope(Category::communication);
      all_features = comm::all_gather(features, *group, 0, kept->sizes);
      all_targets = comm::all_gather(targets, *group, 0, kept->sizes);
    }
    detail::check_targets(all_targets, order.classes);
    auto shared = blocks;
    shared.keep_bytes /= order.shards;
    const auto losses = score(*kept, all_features, weight, all_targets, own.first, scoring, shared);
    context->save_for_backward({all_features});
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return losses;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), "softmax loss: its gradient has none of its own, wanted ",
                                "backward without create_graph");
    const CategoryScope scope(Category::activations);
    const auto saved = context->get_saved_variables();
    auto& kept = static_cast<KeptShards&>(*context->saved_data["kept"].toCapsule());
    const auto rows = cut(saved[0], kept.sizes), own = cut(kept.weight.detach(), kept.class_sizes);
    auto& of_weight = kept.weight.mutable_grad();
    if (!of_weight.defined()) {
      const CategoryScope gradient(Category::gradients);
      of_weight = at::zeros_like(kept.weight.detach());
    }
    const auto of_classes = of_weight.split_with_sizes(kept.class_sizes);
    std::vector<Tensor> by_rank;
    for (size_t batch = 0; batch < rows.size(); ++batch) {
      const auto share = kept.shares[batch] * gradients[0][static_cast<int64_t>(batch)];
      for (size_t shard = 0; shard < own.size(); ++shard) {
        const auto [of_rows, of_own] =
            kept.softmax[batch][shard]->backward(rows[batch], own[shard], kept.log_sums[batch], share, kept.classes);
        by_rank.push_back(of_rows);
        of_classes[shard].add_(of_own);
      }
    }
    variable_list all(8);
    all[0] = own_rows_gradient(kept, by_rank, saved[0]);
    return all;
  }
};

}  // namespace

std::vector<int64_t> ordered_counts(const ShardOrder& order, int ranks) {
  TORCH_CHECK_VALUE(order.shards > 0 && order.shards % ranks == 0, "softmax loss: shards is ", order.shards, " with ",
                    ranks, " ranks, wanted a multiple of them");
  const auto all = comm::split_sizes(order.classes, static_cast<int>(order.shards));
  const int64_t each = order.shards / ranks;
  std::vector<int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + rank * each;
    counts.push_back(std::accumulate(begin, begin + each, int64_t{0}));
  }
  return counts;
}

Tensor ordered_softmax_loss(const Tensor& features, const Tensor& weight, const Tensor& targets,
                            std::span<const int64_t> sizes, const ShardOrder& order, const Scoring& scoring,
                            comm::ProcessGroup& group, const BlockOptions& blocks) {
  detail::check_arguments(features, weight, targets, scoring);
  const auto counts = ordered_counts(order, group.size());
  TORCH_CHECK_VALUE(weight.size(0) == counts[group.rank()], "softmax loss: weight has ", weight.size(0),
                    " rows, wanted the ", counts[group.rank()], " classes of this rank's shards");
  return OrderedLoss::apply(features, weight, targets, std::vector(sizes.begin(), sizes.end()), order, scoring, &group,
                            blocks);
}

}  // namespace tandem::classifier
