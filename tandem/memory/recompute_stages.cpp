#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <set>

#include "tandem/memory/recompute_plan.h"
#include "tandem/memory/rehearsal.h"

namespace tandem::memory {
namespace {

using Numbers = std::set<uint64_t>;  // of storages in a record

/// The events of some storages are left out.
struct Balance {
  std::map<uint64_t, int64_t> live;  // bytes of what was allocated and not freed
  int64_t peak = 0;                  // above the bytes at the beginning
};

Balance balance_of(const std::vector<Event>& events, const Numbers& left_out) {
  Balance balance;
  int64_t sum = 0;
  for (const auto& event : events) {
    if (event.what == Event::What::move || left_out.contains(event.number)) continue;
    sum += event.what == Event::What::allocate ? event.bytes : -event.bytes;
    balance.peak = std::max(balance.peak, sum);
    if (event.what == Event::What::allocate) balance.live[event.number] = event.bytes;
    if (event.what == Event::What::free) balance.live.erase(event.number);
  }
  return balance;
}

void add_to(Numbers& numbers, const std::vector<uint64_t>& others) { numbers.insert(others.begin(), others.end()); }

/// Where the values of a flow come from: the stage that made a value, -1 for the chain's input.
struct Origin {
  int stage = -1;
  int64_t bytes = 0;
};
using Origins = std::vector<Origin>;

class StageOfRecord {
 public:
  StageOfRecord(const BlockRecord& record, int number) : record_(record), number_(number) {
    for (const auto& event : record.forward) {
      if (event.what == Event::What::allocate) allocated_[event.number] = event.bytes;
    }
  }

  /// Of each value that the block passes on.
  Origins origins(const Origins& of_inputs) const {
    Origins origins;
    for (const auto number : record_.outputs) {
      const auto input = std::ranges::find(record_.inputs, number);
      const auto made = allocated_.find(number);
      if (made != allocated_.end()) {
        origins.push_back({number_, made->second});
      } else if (number != 0 && input != record_.inputs.end()) {
        origins.push_back(of_inputs.at(input - record_.inputs.begin()));
      } else {
        origins.emplace_back();  // neither made here nor received: a constant
      }
    }
    return origins;
  }

  Stage stage(const std::string& name, const Origins& of_inputs) const {
    Stage stage{.name = name, .output = 0};
    Numbers seen;
    const auto flow = origins(of_inputs);
    for (size_t i = 0; i < flow.size(); ++i) {
      if (!seen.insert(record_.outputs[i]).second || flow[i].stage < 0) continue;
      if (flow[i].stage == number_) {
        stage.output += flow[i].bytes;
      } else {
        stage.shortcuts.push_back({flow[i].stage, flow[i].bytes});
      }
    }
    stage.forward = record_.nominal_seconds;
    stage.keeps = {keep(stage.output)};
    stage.forward_extra = stage.keeps[0].bytes + stage.keeps[0].forward_extra;
    stage.gradients = gradients();
    return stage;
  }

  /// The gradient that backward starts from, and the output if forward leaves it: their owners hold them to the end.
  int64_t root() const {
    int64_t sum = 0;
    for (const auto& event : record_.backward) {
      if (event.what == Event::What::allocate && event.number == record_.output_gradients.at(0)) sum += event.bytes;
    }
    const auto output = allocated_.find(record_.outputs.at(0));
    return sum + (output == allocated_.end() || freed_in_forward(output->first) ? 0 : output->second);
  }

 private:
  Keep keep(int64_t output) const {
    Numbers inputs;
    add_to(inputs, record_.inputs);
    const auto forward = balance_of(record_.forward, inputs);
    Keep keep{
        .input = false, .output = false, .forward = record_.nominal_seconds, .backward = 2 * record_.nominal_seconds};
    for (const auto& [number, bytes] : forward.live) {
      const bool is_output = std::ranges::find(record_.outputs, number) != record_.outputs.end();
      keep.output = keep.output || is_output;
      keep.bytes += is_output ? 0 : bytes;
    }
    if (!keep.output) keep.spared = record_.nominal_after_saved;
    for (const auto number : inputs) keep.input = keep.input || (number != 0 && !freed_in_forward(number));
    keep.forward_extra = std::max<int64_t>(0, forward.peak - keep.bytes - output);
    Numbers flows = inputs;
    add_to(flows, record_.outputs);
    add_to(flows, record_.output_gradients);
    keep.backward_extra = balance_of(record_.backward, flows).peak;
    return keep;
  }

  bool freed_in_forward(uint64_t number) const {
    return std::ranges::any_of(
        record_.forward, [&](const Event& event) { return event.number == number && event.what == Event::What::free; });
  }

  /// Live at the end of backward, besides the flows and their gradients: what the graph holds to its end, too.
  int64_t gradients() const {
    auto events = record_.forward;
    events.insert(events.end(), record_.backward.begin(), record_.backward.end());
    Numbers flows;
    add_to(flows, record_.inputs);
    add_to(flows, record_.outputs);
    add_to(flows, record_.output_gradients);
    add_to(flows, record_.input_gradients);
    int64_t sum = 0;
    for (const auto& [number, bytes] : balance_of(events, flows).live) sum += bytes;
    return sum;
  }

  const BlockRecord& record_;
  int number_;
  std::map<uint64_t, int64_t> allocated_;
};

}  // namespace

std::vector<Stage> stages_of(const Chain& chain, const std::vector<BlockRecord>& records) {
  TORCH_CHECK_VALUE(records.size() == chain.blocks.size(), "chain: it has ", chain.blocks.size(), " blocks, but ",
                    records.size(), " records, wanted one for each");
  std::vector<Stage> stages;
  Origins flow(records.empty() ? 0 : records[0].inputs.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const StageOfRecord record(records[i], static_cast<int>(i));
    stages.push_back(record.stage(chain.blocks[i].name, flow));
    stages.back().parts = std::max<int>(1, static_cast<int>(chain.blocks[i].parts.size()));
    flow = record.origins(flow);
    if (i + 1 == records.size()) stages.back().gradients += record.root();
  }
  return stages;
}

}  // namespace tandem::memory
