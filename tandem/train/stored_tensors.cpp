#include "tandem/train/stored_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/train/detail/element_fault.h"
#include "tandem/train/detail/stored_part.h"
#include "tandem/train/model_card.h"

namespace tandem::train {
namespace {

std::string describe(at::ScalarType type, at::IntArrayRef sizes) {
  std::ostringstream text;
  text << type << " " << sizes;
  return text.str();
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

bool can_become(at::ScalarType stored, at::ScalarType wanted) {
  return stored == wanted || (at::isIntegralType(wanted, /*includeBool=*/false) && at::isFloatingType(stored));
}

/// Calls `read` with the target itself, or with a contiguous CPU tensor of the stored type that is then checked and
/// copied to the target.
template <class Read, class Check>
void fill(const Tensor& target, at::ScalarType stored, const Read& read, const Check& check) {
  const at::NoGradGuard no_grad;
  const bool is_plain = stored == target.scalar_type() && target.is_cpu() && target.is_contiguous() &&
                        !target.is_conj() && !target.is_neg();
  const auto place = is_plain ? target.detach() : at::empty(target.sizes(), at::TensorOptions(stored));
  read(place);
  if (stored != target.scalar_type()) check(place);
  if (!is_plain) target.detach().copy_(place);
}

/// Reads and checks all of a stored part; the elements `common` go to `target`, which holds the elements `box`.
void read_sound(const storage::SafetensorsFile& file, const StoredTensor::Part& part, const Box& common,
                const Tensor& target, const Box& box) {
  const auto from = offset_of_run(part.box, common), to = offset_of_run(box, common);
  if (from && to) {
    const uint64_t item = target.itemsize();
    file.read_sound(part.stored, *from * item, bytes_of(target).subspan(*to * item, volume(common) * item));
    return;
  }
  const auto whole = at::empty(part.box.count, target.options());
  file.read_sound(part.stored, 0, bytes_of(whole));
  view_of(target, box, common).copy_(view_of(whole, part.box, common));
}

/// `box` in pieces along dim 0, cut where a part that lies in it begins or ends.
std::vector<Box> slabs_of(const Box& box, const std::vector<StoredTensor::Part>& parts) {
  if (volume(box) == 0) return {};
  if (box.first.empty()) return {box};
  std::set<int64_t> cuts = {box.first[0], box.first[0] + box.count[0]};
  for (const auto& part : parts) {
    const auto common = intersection(part.box, box);
    if (common) cuts.insert({common->first[0], common->first[0] + common->count[0]});
  }
  std::vector<Box> slabs;
  for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); begin = end++) {
    slabs.push_back(box);
    slabs.back().first[0] = *begin;
    slabs.back().count[0] = *end - *begin;
  }
  return slabs;
}

void check_inside(const std::string& name, at::IntArrayRef sizes, const Box& box) {
  bool inside = box.first.size() == sizes.size() && box.count.size() == sizes.size();
  for (size_t dim = 0; inside && dim < sizes.size(); ++dim) {
    inside = box.first[dim] >= 0 && box.count[dim] >= 0 && box.first[dim] <= sizes[dim] &&
             box.count[dim] <= sizes[dim] - box.first[dim];
  }
  if (inside) return;
  std::ostringstream text;
  text << "tensor " << quote(name) << " has sizes " << sizes << ", wanted its elements " << to_string(box);
  throw DataError(text.str());
}

}  // namespace

bool is_state_name(std::string_view name) { return name.starts_with("optimizer.") || name == kClassNames; }

StoredTensors::StoredTensors(std::vector<File> files) : files_(std::move(files)) {
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const auto& stored : files_[i].content.names()) add_tensor(stored, i);
  }
  check_parts();
}

void StoredTensors::add_tensor(const std::string& stored, size_t place) {
  const auto& [file_name, rank, file] = files_[place];
  const parallel::Placement placement = {.splits = detail::splits_of(file, stored)};
  const auto name = placement.splits.empty() ? stored : detail::name_of_whole(stored, rank);
  if (!name) {
    throw DataError("tensor " + quote(stored) + " of " + file_name + " is a part and has no name that ends with " +
                    detail::name_of_part("", rank));
  }
  const auto& shape = file.shape(stored);
  const StoredTensor found = {file.dtype(stored), placement.whole_sizes(shape), {}, {}};
  auto& tensor = tensors_.emplace(*name, found).first->second;
  if (tensor.type != found.type || tensor.sizes != found.sizes) {
    throw DataError("tensor " + quote(*name) + " is " + describe(found.type, found.sizes) + " in " + file_name +
                    ", wanted " + describe(tensor.type, tensor.sizes) + " as in " + files_[tensor.parts[0].file].name);
  }
  for (const auto& split : placement.splits) tensor.split_dims.insert(split.dim);
  tensor.parts.push_back({place, stored, placement.box(shape)});
}

void StoredTensors::check_parts() const {
  for (const auto& [name, tensor] : tensors_) {
    std::vector<Box> boxes;
    std::vector<std::string> places;
    for (const auto& part : tensor.parts) {
      boxes.push_back(part.box);
      places.push_back(files_[part.file].name);
    }
    if (const auto fault = tiling_fault(tensor.sizes, boxes, places)) {
      throw DataError("tensor " + quote(name) + " " + *fault);
    }
  }
}

std::vector<std::string> StoredTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

const StoredTensor& StoredTensors::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw DataError("tensor " + quote(name) + " is missing in this checkpoint");
  return found->second;
}

Tensor StoredTensors::read(const std::string& name) const { return read(name, whole_box(tensor(name).sizes)); }

Tensor StoredTensors::read(const std::string& name, const Box& box) const {
  check_inside(name, tensor(name).sizes, box);
  return assemble(tensor(name), box);
}

/// The elements `common` of a stored part.
Tensor StoredTensors::read_part(const StoredTensor::Part& part, const Box& common) const {
  const auto& file = files_[part.file].content;
  const auto first = offset_of_run(part.box, common);
  if (!first) return view_of(file.read(part.stored), part.box, common);
  auto piece = at::empty(common.count, at::TensorOptions(file.dtype(part.stored)));
  file.read(part.stored, *first * piece.itemsize(), bytes_of(piece));
  return piece;
}

Tensor StoredTensors::assemble(const StoredTensor& tensor, const Box& box) const {
  Tensor result;
  for (const auto& part : tensor.parts) {
    const auto common = intersection(part.box, box);
    if (!common) continue;
    const auto piece = read_part(part, *common);
    if (*common == box) return piece;
    if (!result.defined()) result = at::empty(box.count, piece.options());
    view_of(result, box, *common).copy_(piece);
  }
  return result.defined() ? result : at::empty(box.count, at::TensorOptions(tensor.type));
}

void StoredTensors::read_into(const std::string& name, const parallel::Placement& placement,
                              const Tensor& target) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw SettingsError("tensor " + quote(name) + " is missing, wanted it in the checkpoint");
  const auto& tensor = found->second;
  const auto sizes = placement.whole_sizes(target.sizes());
  if (!can_become(tensor.type, target.scalar_type()) || tensor.sizes != sizes) {
    throw SettingsError("tensor " + quote(name) + " is " + describe(tensor.type, tensor.sizes) + ", wanted " +
                        describe(target.scalar_type(), sizes));
  }
  const auto box = placement.box(target.sizes());
  const auto read = [&](const Tensor& place) {
    for (const auto& part : tensor.parts) {
      const auto common = intersection(part.box, box);
      if (common) read_sound(files_[part.file].content, part, *common, place, box);
    }
  };
  fill(target, tensor.type, read, [&](const Tensor& place) {
    detail::refuse_elements(place, detail::is_no_whole_number(place), box, "tensor " + quote(name), "a whole number");
  });
}

void StoredTensors::verify_others(const std::set<std::string>& read, int rank, int size) const {
  for (const auto& [name, tensor] : tensors_) {
    if (read.contains(name)) continue;
    for (const auto& part : tensor.parts) {
      if (static_cast<int>(part.file) % size == rank) files_[part.file].content.read_sound(part.stored, 0, {});
    }
  }
}

storage::TensorSource StoredTensors::source(const std::string& name, const Box& box, const std::string& as) const {
  const auto& whole = tensor(name);
  check_inside(name, whole.sizes, box);
  return {as, whole.type, box.count, [this, &whole, box](const auto& take) {
            for (const auto& slab : slabs_of(box, whole.parts)) take(assemble(whole, slab));
          }};
}

}  // namespace tandem::train
