#pragma once
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::parallel {

/// What a model takes or gives: a tensor, or a list or a map of such values.
///
///   Nested batch(std::map<std::string, Nested>{{"images", images}, {"boxes", std::vector<Nested>{first, second}}});
///   batch["boxes"][1].tensor()
class Nested {
 public:
  using List = std::vector<Nested>;
  using Map = std::map<std::string, Nested>;

  Nested() = default;  // an undefined tensor
  Nested(Tensor tensor) : value_(std::move(tensor)) {}
  Nested(List list) : value_(std::move(list)) {}
  Nested(Map map) : value_(std::move(map)) {}

  bool is_tensor() const { return std::holds_alternative<Tensor>(value_); }

  /// These throw c10::TypeError if the value is of another kind, and c10::IndexError if there is no such member.
  const Tensor& tensor() const;
  const Nested& operator[](size_t place) const;
  const Nested& operator[](const std::string& name) const;

  /// Its tensors, depth first; maps in the order of their names.
  std::vector<Tensor> tensors() const;

  /// The same form with other tensors, in the order of tensors(). Throws c10::ValueError if their number differs.
  Nested with(std::span<const Tensor> tensors) const;

 private:
  void add_tensors(std::vector<Tensor>& all) const;
  Nested with_next(std::span<const Tensor>& rest) const;
  std::string kind() const;

  std::variant<Tensor, List, Map> value_;
};

}  // namespace tandem::parallel
