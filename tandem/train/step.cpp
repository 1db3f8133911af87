#include "tandem/train/step.h"

#include <algorithm>

#include "tandem/comm/agree.h"

namespace tandem::train {

std::optional<double> value_of(const Facts& facts, std::string_view name) {
  const auto found = std::ranges::find(facts, name, &Fact::name);
  return found == facts.end() ? std::nullopt : std::optional(found->value);
}

Facts over_ranks(Facts facts, comm::ProcessGroup& group) {
  for (auto& fact : facts) {
    if (fact.over_ranks) fact.value = comm::reduce_number(fact.value, *fact.over_ranks, group);
  }
  return facts;
}

}  // namespace tandem::train
