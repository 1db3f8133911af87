#include <ATen/ATen.h>

#include <algorithm>

#include "tandem/memory/rehearsal.h"

namespace tandem::memory {
namespace {

int64_t numbers_in(const std::vector<Tensor>& tensors) {
  int64_t count = 0;
  for (const auto& tensor : tensors) count += tensor.numel();
  return count;
}

bool contains(const std::vector<uint64_t>& numbers, uint64_t number) {
  return std::ranges::find(numbers, number) != numbers.end();
}

/// Bytes of the storages that the block allocates and passes on.
int64_t output_of(const BlockRecord& record) {
  int64_t bytes = 0;
  for (const auto& event : record.forward) {
    if (event.what == Event::What::allocate && contains(record.outputs, event.number)) bytes += event.bytes;
  }
  return bytes;
}

/// The highest sum of the events, without the storages `left_out`.
int64_t peak_of(const std::vector<Event>& events, const std::vector<uint64_t>& left_out) {
  int64_t live = 0, peak = 0;
  for (const auto& event : events) {
    if (event.what == Event::What::move || contains(left_out, event.number)) continue;
    live += event.what == Event::What::allocate ? event.bytes : -event.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace

std::vector<Cost> measure(const Chain& chain, const Flow& input) {
  const auto records = rehearse(chain, input);
  std::vector<Cost> costs;
  for (size_t i = 0; i < records.size(); ++i) {
    const auto& record = records[i];
    Cost cost{.name = chain.blocks[i].name,
              .parameters = numbers_in(parameters_of(chain.blocks[i])),
              .buffers = numbers_in(buffers_of(chain.blocks[i])),
              .output = output_of(record)};
    cost.saved = record.returned - cost.output;
    cost.forward_extra = peak_of(record.forward, record.inputs) - record.returned;
    cost.backward_extra = peak_of(record.backward, record.output_gradients);
    cost.forward = record.forward_seconds;
    cost.backward = record.backward_seconds;
    costs.push_back(std::move(cost));
  }
  return costs;
}

}  // namespace tandem::memory
