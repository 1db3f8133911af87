#include "tandem/evaluation/detail/blocks.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "tandem/comm/collectives.h"

namespace tandem::evaluation::detail {
namespace {

template <class T>
void fill_row(const T* products, Rows::Scale query, std::span<const Rows::Scale> gallery, double relative,
              double smallest, std::span<double> value, std::span<double> slack) {
  const double of_length = relative * query.length, of_factor = smallest * query.factor;
  for (size_t j = 0; j < gallery.size(); ++j) {
    const double product = products[j];
    value[j] = product * (query.factor * gallery[j].factor);
    slack[j] = of_length * gallery[j].length + of_factor * gallery[j].factor;
    if (std::isfinite(product)) continue;
    value[j] = 0;
    slack[j] = std::numeric_limits<double>::infinity();
  }
}

template <class T>
void visit_block(const Tensor& products, const Rows& queries, const Rows& gallery, int64_t first,
                 const std::function<void(const BlockRow&)>& visit) {
  const int64_t columns = products.size(1);
  const double relative = relative_slack(queries), smallest = smallest_slack(queries);
  const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / columns);
  at::parallel_for(0, products.size(0), grain, [&](int64_t begin, int64_t end) {
    std::vector<double> value(columns), slack(columns);
    for (int64_t i = begin; i < end; ++i) {
      fill_row(products.const_data_ptr<T>() + i * columns, queries.scale()[i],
               {gallery.scale() + first, static_cast<size_t>(columns)}, relative, smallest, value, slack);
      visit({i, first, value, slack});
    }
  });
}

}  // namespace

// A sum of D products in any order is off by at most D/2 * epsilon * |a||b| (Higham 2002, section 3.1), and the
// definition's own sum in float64 likewise. The rest of the bound is for the factors.
double relative_slack(const Rows& rows) {
  const bool is_double = rows.features.scalar_type() == at::kDouble;
  const double epsilon = is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  return static_cast<double>(rows.dim() + 8) * epsilon;
}

double smallest_slack(const Rows& rows) {
  const bool is_double = rows.features.scalar_type() == at::kDouble;
  const double smallest = is_double ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  return static_cast<double>(rows.dim()) * smallest;
}

void for_each_row(const Rows& queries, const Rows& gallery, int64_t block_bytes,
                  const std::function<void(const BlockRow&)>& visit) {
  if (queries.size() == 0 || gallery.size() == 0) return;
  const int64_t row_bytes = queries.size() * static_cast<int64_t>(queries.features.element_size());
  const int64_t columns = std::clamp<int64_t>(block_bytes / row_bytes, 1, gallery.size());
  const auto buffer = at::empty({queries.size() * columns}, queries.features.options());
  for (int64_t first = 0; first < gallery.size(); first += columns) {
    const int64_t count = std::min(columns, gallery.size() - first);
    auto products = buffer.narrow(0, 0, queries.size() * count).view({queries.size(), count});
    at::mm_out(products, queries.features, gallery.features.narrow(0, first, count).t());
    AT_DISPATCH_FLOATING_TYPES(products.scalar_type(), "evaluation",
                               [&] { visit_block<scalar_t>(products, queries, gallery, first, visit); });
  }
}

void for_each_query_block(const Rows& own, const std::vector<int64_t>& sizes, comm::ProcessGroup& group,
                          const std::function<void(const Rows&, int64_t begin)>& visit) {
  const int64_t rows = std::max<int64_t>(1, kQueryRows / group.size());
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  for (int64_t begin = 0; begin < most; begin += rows) {
    std::vector<int64_t> counts;
    for (const int64_t size : sizes) counts.push_back(std::clamp<int64_t>(size - begin, 0, rows));
    const auto part = own.narrow(std::min(begin, own.size()), counts[group.rank()]);
    const auto gather = [&](const Tensor& x) { return comm::all_gather(x, group, 0, counts).contiguous(); };
    const Rows block = {gather(part.features), gather(part.labels), gather(part.scales)};
    visit(block, begin);
  }
}

}  // namespace tandem::evaluation::detail
