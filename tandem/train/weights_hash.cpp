#include "tandem/train/weights_hash.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <sstream>

#include "tandem/base/context.h"
#include "tandem/base/quote.h"
#include "tandem/comm/agree.h"
#include "tandem/comm/collectives.h"
#include "tandem/storage/checksum.h"
#include "tandem/storage/safetensors.h"

namespace tandem::train {
namespace {

using parallel::Parameter;

constexpr int64_t kPieceBytes = 16 << 20;
constexpr char kEnd = '\0';  // no tensor's name has it

/// A part of a tensor, on one of the ranks.
struct Part {
  std::string name, title;  // title: what is hashed before the tensor's bytes
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes;  // of the whole
  Box box;
  int rank = 0;
  Tensor tensor;  // on its own rank only
};

std::string title_of(const Parameter& parameter, at::IntArrayRef sizes) {
  const auto type = storage::safetensors_dtype(parameter.tensor.scalar_type());
  TORCH_CHECK_TYPE(!type.empty(), "tensor ", quote(parameter.name), " is of type ", parameter.tensor.scalar_type(),
                   ", wanted one that safetensors has");
  std::string title = parameter.name + ' ' + std::string(type) + ' ';
  for (size_t dim = 0; dim < sizes.size(); ++dim) title += (dim == 0 ? "" : ",") + std::to_string(sizes[dim]);
  return title + '\n';
}

std::vector<Part> parts_of_rank(const std::vector<Parameter>& tensors, int rank) {
  std::vector<Part> parts;
  for (const auto& parameter : tensors) {
    const auto sizes = parameter.placement.whole_sizes(parameter.tensor.sizes());
    const auto title = title_of(parameter, sizes);  // checks the type on every rank
    if (!parameter.placement.counts_on(rank)) continue;
    const auto box = parameter.placement.box(parameter.tensor.sizes());
    parts.push_back(
        {parameter.name, title, parameter.tensor.scalar_type(), sizes, box, rank, parameter.tensor.detach()});
  }
  return parts;
}

std::string encode(const std::vector<Part>& parts) {
  std::ostringstream text;
  for (const auto& part : parts) {
    text << part.name << kEnd << part.title << kEnd << static_cast<int>(part.type) << ' ' << part.sizes.size();
    for (const auto* numbers : {&part.sizes, &part.box.first, &part.box.count}) {
      for (const auto number : *numbers) text << ' ' << number;
    }
    text << kEnd;
  }
  return text.str();
}

std::vector<Part> decode(const std::string& text, int rank) {
  std::vector<Part> parts;
  std::istringstream words(text);
  std::string numbers;
  for (Part part; std::getline(words, part.name, kEnd);) {
    std::getline(words, part.title, kEnd);
    std::getline(words, numbers, kEnd);
    std::istringstream digits(numbers);
    int type = 0;
    size_t dims = 0;
    digits >> type >> dims;
    part.type = static_cast<at::ScalarType>(type);
    for (auto* list : {&part.sizes, &part.box.first, &part.box.count}) {
      list->resize(dims);
      for (auto& number : *list) digits >> number;
    }
    part.rank = rank;
    parts.push_back(part);
  }
  return parts;
}

/// The counted parts of all ranks by name, those of a tensor in rank order; the same on all ranks but for `tensor`.
std::vector<Part> parts_of_all(const std::vector<Part>& own, comm::ProcessGroup& group) {
  std::vector<Part> all;
  const auto texts = comm::gather_texts(encode(own), group);
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto parts = rank == group.rank() ? own : decode(texts[rank], rank);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  std::ranges::stable_sort(all, {}, &Part::name);
  return all;
}

void check_parts(std::span<const Part> parts) {
  std::vector<Box> boxes;
  std::vector<std::string> places;
  for (const auto& part : parts) {
    TORCH_CHECK_VALUE(part.title == parts[0].title, "tensor ", quote(part.name),
                      " has another type or other sizes on rank ", part.rank, " than on rank ", parts[0].rank);
    boxes.push_back(part.box);
    places.push_back("rank " + std::to_string(part.rank));
  }
  const auto fault = tiling_fault(parts[0].sizes, boxes, places);
  TORCH_CHECK_VALUE(!fault, "tensor ", quote(parts[0].name), " ", *fault);
}

/// Pieces along dim 0 that together are the whole tensor.
std::vector<Box> slabs_of(at::IntArrayRef sizes, int64_t item_bytes) {
  const auto whole = whole_box(sizes);
  if (volume(whole) == 0) return {};
  if (sizes.empty()) return {whole};
  const int64_t row_bytes = c10::multiply_integers(sizes.slice(1)) * item_bytes;
  const int64_t step = std::max<int64_t>(kPieceBytes / row_bytes, 1);
  std::vector<Box> slabs;
  for (int64_t first = 0; first < sizes[0]; first += step) {
    slabs.push_back(whole);
    slabs.back().first[0] = first;
    slabs.back().count[0] = std::min(step, sizes[0] - first);
  }
  return slabs;
}

/// The elements `slab` on rank 0, undefined elsewhere. Every rank takes part in every slab, so that no rank waits
/// longer than for one.
Tensor collect(std::span<const Part> parts, const Box& slab, comm::ProcessGroup& group) {
  std::vector<int64_t> sizes(group.size(), 0);
  std::vector<Tensor> own = {at::empty({0}, parts[0].type)};
  for (const auto& part : parts) {
    const auto common = intersection(part.box, slab);
    if (!common) continue;
    sizes[part.rank] += volume(*common);
    if (part.rank == group.rank()) own.push_back(view_of(part.tensor, part.box, *common).cpu().reshape({-1}));
  }
  auto flat = own.size() == 2 ? own[1] : at::cat(own);
  if (sizes[0] != volume(slab)) flat = comm::gather(flat, 0, group, 0, sizes);
  if (group.rank() != 0) return {};
  const auto whole = at::empty(slab.count, parts[0].type);
  int64_t next = 0;
  for (const auto& part : parts) {
    const auto common = intersection(part.box, slab);
    if (!common) continue;
    if (*common == slab) return flat;
    view_of(whole, slab, *common).copy_(flat.narrow(0, next, volume(*common)).view(common->count));
    next += volume(*common);
  }
  return whole;
}

void add(storage::Checksum& checksum, const Tensor& contiguous) {
  checksum.update({static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()});
}

}  // namespace

std::string weights_hash(const std::vector<Parameter>& tensors, comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  const auto all = parts_of_all(parts_of_rank(tensors, group.rank()), group);
  storage::Checksum checksum;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && all[end].name == all[begin].name) ++end;
    const auto parts = std::span(all).subspan(begin, end - begin);
    check_parts(parts);
    checksum.update(std::as_bytes(std::span(parts[0].title)));
    for (const auto& slab : slabs_of(parts[0].sizes, static_cast<int64_t>(c10::elementSize(parts[0].type)))) {
      const auto piece = collect(parts, slab, group);
      if (group.rank() == 0) add(checksum, piece);
    }
  }
  return group.rank() == 0 ? checksum.hex() : "";
}

}  // namespace tandem::train
