#include "tandem/layers/type_check.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace tandem::layers {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"invariant", "varying", "replicated", "partial"};

std::string_view name_of(Along along) { return kNames[static_cast<size_t>(along)]; }

/// What f(a) + f(b) = f(a + b) holds for, and what does not look at the numbers.
constexpr std::array<std::string_view, 38> kLinear = {
    "add",          "add_",      "sub",      "sub_",       "mul",    "mul_",   "div",       "div_",    "neg",
    "sum",          "mean",      "matmul",   "mm",         "bmm",    "linear", "cat",       "stack",   "clone",
    "copy_",        "to",        "_to_copy", "contiguous", "detach", "view",   "reshape",   "flatten", "permute",
    "transpose",    "t",         "narrow",   "slice",      "select", "expand", "unsqueeze", "squeeze", "alias",
    "_unsafe_view", "as_strided"};

/// Those that take the mean of their rows.
constexpr std::array<std::string_view, 6> kMeans = {"mean",     "nll_loss", "nll_loss_forward", "cross_entropy_loss",
                                                    "mse_loss", "l1_loss"};

/// Those that may weight a mean by its rows.
constexpr std::array<std::string_view, 4> kWeightings = {"mul", "mul_", "div", "div_"};

/// "tensor", or "data and shard".
std::string text_of(parallel::Axes axes) {
  using parallel::Axis;
  std::string text;
  for (const auto axis : {Axis::data, Axis::shard, Axis::tensor, Axis::pipeline}) {
    if (axes.has(axis)) text.append(text.empty() ? "" : " and ").append(name_of(axis));
  }
  return text;
}

template <class List>
bool holds(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

std::string_view without_namespace(std::string_view operation) {
  return operation.starts_with("aten::") ? operation.substr(6) : operation;
}

void collect(const c10::IValue& value, std::vector<Tensor>& all) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) all.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const auto& tensor : value.toTensorVector()) all.push_back(tensor);
  } else if (value.isList()) {
    for (const auto& item : value.toListRef()) collect(item, all);
  }
}

std::vector<Tensor> tensors_in(c10::ArrayRef<const c10::IValue> values) {
  std::vector<Tensor> all;
  for (const auto& value : values) collect(value, all);
  return all;
}

/// Along each direction; nullopt: it is a constant, or nobody has told.
using Kinds = std::vector<std::optional<Along>>;

}  // namespace

struct TypeCheck::Impl : ValueObserver {
  Impl(std::vector<Direction> of_directions, const std::vector<parallel::Parameter>& parameters)
      : directions(std::move(of_directions)) {
    for (const auto& [name, tensor, placement] : parameters) {
      const auto [other, is_new] = layers.emplace(tensor.unsafeGetTensorImpl(), name.substr(0, name.rfind('.')));
      if (!is_new) {
        throw TypeError("types: " + name + " is the weight of " + other->second +
                            ", too, and would count twice in a norm of gradients, wanted each tensor once",
                        "list it under its first name");
      }
      Kinds kinds;
      for (const auto& direction : directions) {
        const auto whole = direction.sums_gradients ? Along::replicated : Along::invariant;
        kinds.emplace_back(placement.is_replicated_along(direction.axes) ? whole : Along::varying);
      }
      know(tensor, std::move(kinds));
    }
  }

  struct Entry {
    Tensor alive;  // no other tensor gets its address
    Kinds kinds;
    std::vector<bool> is_mean;  // of a part of the rows, of which ranks have unequal numbers
  };

  void know(const Tensor& value, Kinds kinds, std::vector<bool> is_mean = {}) {
    if (is_mean.empty()) is_mean.resize(directions.size());
    entries[value.unsafeGetTensorImpl()] = {value, std::move(kinds), std::move(is_mean)};
  }

  const Entry* entry_of(const Tensor& value) const {
    const auto found = value.defined() ? entries.find(value.unsafeGetTensorImpl()) : entries.end();
    return found == entries.end() ? nullptr : &found->second;
  }

  /// The entry of a value, or that of one of which nothing is known.
  Entry known_or_fresh(const Tensor& value) const {
    const auto* entry = entry_of(value);
    return entry != nullptr ? *entry : Entry{{}, Kinds(directions.size()), std::vector<bool>(directions.size())};
  }

  std::optional<size_t> direction_of(const void* group) const {
    for (size_t i = 0; i < directions.size(); ++i) {
      if (directions[i].group == group) return i;
    }
    return std::nullopt;
  }

  size_t direction_along(parallel::Axes axes) const {
    const auto at = std::ranges::find(directions, axes, &Direction::axes);
    TORCH_CHECK_VALUE(at != directions.end(), "types: ", text_of(axes), " is not followed");
    return static_cast<size_t>(at - directions.begin());
  }

  void fail(std::string_view operation, const std::string& what, size_t direction, const std::string& remedy) {
    if (fault) return;
    fault.emplace("types: " + (layer.empty() ? "" : layer + ": ") + std::string(operation) + " of " + what + " along " +
                      text_of(directions[direction].axes),
                  remedy);
  }

  /// What an operator gives along a direction.
  std::optional<Along> joint(std::string_view operation, const std::vector<Tensor>& inputs, size_t direction) {
    std::array<bool, 4> has{}, has_gradient{};
    for (const auto& input : inputs) {
      const auto* entry = entry_of(input);
      if (entry == nullptr || !entry->kinds[direction]) continue;
      const auto kind = static_cast<size_t>(*entry->kinds[direction]);
      has[kind] = true;
      has_gradient[kind] |= input.requires_grad();
    }
    const auto is = [&](Along kind) { return has[static_cast<size_t>(kind)]; };
    const bool invariant = has_gradient[0], others = is(Along::varying) || is(Along::replicated);
    if (is(Along::partial)) {
      const bool is_sum = holds(kLinear, without_namespace(operation));
      if (!is_sum || invariant || others) {
        fail(operation,
             "a partial value" + std::string(invariant ? " and an invariant one"
                                             : others  ? " and another"
                                                       : ""),
             direction, "sum it over the ranks first: reduce_from_region()");
      }
      return Along::partial;
    }
    if (invariant && others) {
      fail(operation, "an invariant value and a " + std::string(is(Along::varying) ? "varying" : "replicated") + " one",
           direction,
           is(Along::varying)
               ? "the gradient of the first is a sum over the ranks: copy_to_region()"
               : "the gradient of the second would be summed: gather_from_region(), or reduce_from_region()");
    }
    if (is(Along::varying)) return Along::varying;
    if (is(Along::replicated)) return Along::replicated;
    if (is(Along::invariant)) return Along::invariant;
    return std::nullopt;
  }

  Entry result_of(std::string_view operation, const std::vector<Tensor>& inputs) {
    for (const auto& input : inputs) {
      const auto found = layers.find(input.unsafeGetTensorImpl());
      if (found != layers.end()) layer = found->second;
    }
    auto result = known_or_fresh({});
    const auto name = without_namespace(operation);
    for (size_t i = 0; i < directions.size(); ++i) {
      result.kinds[i] = joint(operation, inputs, i);
      const bool is_part = directions[i].has_unequal_rows && result.kinds[i] == Along::varying;
      bool is_mean = is_part && holds(kMeans, name);
      for (const auto& input : inputs) {
        const auto* entry = entry_of(input);
        is_mean |= entry != nullptr && entry->is_mean[i];
      }
      result.is_mean[i] = is_mean && !holds(kWeightings, name);
    }
    return result;
  }

  void computed(const char* operation, const Tensor& result, std::initializer_list<Tensor> inputs) override {
    std::vector<Tensor> given;
    for (const auto& input : inputs) {
      if (input.defined()) given.push_back(input);
    }
    auto entry = result_of(operation, given);
    know(result, std::move(entry.kinds), std::move(entry.is_mean));
  }

  void exchanged(const char* operation, const void* group, const Tensor& value, Along takes, const Tensor& result,
                 Along gives) override {
    auto entry = known_or_fresh(value);
    if (const auto direction = direction_of(group)) {
      auto& kind = entry.kinds[*direction];
      if (kind && *kind != takes) {
        const auto remedy = "wanted " + std::string(name_of(takes));
        fail(operation, "a value that is " + std::string(name_of(*kind)), *direction, remedy);
      }
      if (entry.is_mean[*direction] && takes == Along::partial) refuse_mean(operation, *direction);
      kind = gives;
      entry.is_mean[*direction] = false;
    }
    know(result, std::move(entry.kinds), std::move(entry.is_mean));
  }

  void refuse_mean(std::string_view operation, size_t direction) {
    fail(operation, "a mean of this rank's rows, of which other ranks have more or fewer,", direction,
         "weight it by the number of rows");
  }

  void is_term(const Tensor& result, const void* group) override {
    const auto direction = direction_of(group);
    if (!direction) return;
    auto entry = known_or_fresh(result);
    entry.kinds[*direction] = Along::partial;
    know(result, std::move(entry.kinds), std::move(entry.is_mean));
  }

  void drawn(const char* operation, const Tensor& value, const void* group) override {
    const auto* entry = entry_of(value);
    for (size_t i = 0; entry != nullptr && i < directions.size(); ++i) {
      if (entry->kinds[i] != Along::varying || directions[i].group == group || directions[i].sums_gradients) continue;
      fail(operation, "a varying value, of which each rank draws the same numbers,", i,
           "draw by the place in the whole: Dropout::Divided");
    }
  }

  void check() const {
    if (fault) throw *fault;
  }

  /// What the operator that runs will give; its inputs are gone when it ends.
  struct Running : at::ObserverContext {
    explicit Running(Entry of_result) : result(std::move(of_result)) {}
    Entry result;
  };

  static Impl* following() { return dynamic_cast<Impl*>(value_observer()); }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation) {
    auto* self = following();
    if (self == nullptr) return nullptr;
    return std::make_unique<Running>(self->result_of(operation.name(), tensors_in(operation.inputs())));
  }

  static void end(const at::RecordFunction& operation, at::ObserverContext* context) {
    auto* self = following();
    if (self == nullptr || context == nullptr) return;
    const auto& result = static_cast<Running*>(context)->result;
    if (std::ranges::none_of(result.kinds, [](const auto& kind) { return kind.has_value(); })) return;
    for (const auto& output :
         tensors_in(c10::ArrayRef<const c10::IValue>(operation.outputs().data(), operation.outputs().size()))) {
      if (output.defined()) self->know(output, result.kinds, result.is_mean);
    }
  }

  std::vector<Direction> directions;
  std::unordered_map<const c10::TensorImpl*, Entry> entries;
  std::unordered_map<const c10::TensorImpl*, std::string> layers;  // whose parameter it is
  std::string layer;                                               // that came last
  std::optional<TypeError> fault;
};

TypeCheck::TypeCheck(std::vector<Direction> directions, const std::vector<parallel::Parameter>& parameters)
    : impl_(std::make_unique<Impl>(std::move(directions), parameters)),
      scope_(impl_.get()),
      callback_(at::addThreadLocalCallback(at::RecordFunctionCallback(&Impl::begin, &Impl::end)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {}

TypeCheck::~TypeCheck() { at::removeCallback(callback_); }

void TypeCheck::know(const Tensor& value, parallel::Axes axes, Along along) {
  auto kinds = impl_->known_or_fresh(value).kinds;
  kinds[impl_->direction_along(axes)] = along;
  impl_->know(value, std::move(kinds));
}

memory::Flow TypeCheck::run(const memory::Chain& chain, memory::Flow input) {
  for (const auto& block : chain.blocks) {
    impl_->layer = block.name;
    input = memory::run(memory::Chain{{block}}, std::move(input));
    impl_->check();
  }
  return input;
}

void TypeCheck::expect(const std::string& what, const Tensor& value, parallel::Axes axes, Along wanted) {
  impl_->check();
  const auto direction = impl_->direction_along(axes);
  const auto* entry = impl_->entry_of(value);
  if (entry == nullptr || !entry->kinds[direction]) return;
  impl_->layer.clear();
  if (entry->is_mean[direction]) impl_->refuse_mean(what, direction);
  const auto kind = *entry->kinds[direction];
  if (kind != wanted) {
    impl_->fail(what, "a value that is " + std::string(name_of(kind)), direction,
                "wanted " + std::string(name_of(wanted)));
  }
  impl_->check();
}

}  // namespace tandem::layers
