#include "tandem/parallel/nested.h"

#include <array>

namespace tandem::parallel {

std::string Nested::kind() const {
  constexpr std::array<const char*, 3> kKinds = {"a tensor", "a list", "a map"};
  return kKinds.at(value_.index());
}

const Tensor& Nested::tensor() const {
  const auto* tensor = std::get_if<Tensor>(&value_);
  TORCH_CHECK_TYPE(tensor != nullptr, "nested value: it is ", kind(), ", wanted a tensor");
  return *tensor;
}

const Nested& Nested::operator[](size_t place) const {
  const auto* list = std::get_if<List>(&value_);
  TORCH_CHECK_TYPE(list != nullptr, "nested value: it is ", kind(), ", wanted a list");
  TORCH_CHECK_INDEX(place < list->size(), "nested value: place is ", place, " in a list of ", list->size());
  return (*list)[place];
}

const Nested& Nested::operator[](const std::string& name) const {
  const auto* map = std::get_if<Map>(&value_);
  TORCH_CHECK_TYPE(map != nullptr, "nested value: it is ", kind(), ", wanted a map");
  const auto found = map->find(name);
  TORCH_CHECK_INDEX(found != map->end(), "nested value: the map has no '", name, "'");
  return found->second;
}

std::vector<Tensor> Nested::tensors() const {
  std::vector<Tensor> all;
  add_tensors(all);
  return all;
}

Nested Nested::with(std::span<const Tensor> tensors) const {
  auto rest = tensors;
  const auto count = this->tensors().size();
  TORCH_CHECK_VALUE(count == tensors.size(), "nested value: ", tensors.size(), " tensors for a form of ", count);
  return with_next(rest);
}

void Nested::add_tensors(std::vector<Tensor>& all) const {
  if (is_tensor()) return all.push_back(tensor());
  if (const auto* list = std::get_if<List>(&value_)) {
    for (const auto& value : *list) value.add_tensors(all);
    return;
  }
  for (const auto& [name, value] : std::get<Map>(value_)) value.add_tensors(all);
}

Nested Nested::with_next(std::span<const Tensor>& rest) const {
  if (is_tensor()) {
    const auto& next = rest.front();
    rest = rest.subspan(1);
    return next;
  }
  if (const auto* list = std::get_if<List>(&value_)) {
    List other;
    for (const auto& value : *list) other.push_back(value.with_next(rest));
    return other;
  }
  Map other;
  for (const auto& [name, value] : std::get<Map>(value_)) other.emplace(name, value.with_next(rest));
  return other;
}

}  // namespace tandem::parallel
