#include "tandem/comm/agree.h"

#include <ATen/ATen.h>

#include <cstring>

namespace tandem::comm {
namespace {

Tensor number(int64_t value) { return at::full({1}, value, at::kLong); }

/// The bytes of `text`, copied.
Tensor bytes_of(const std::string& text) {
  const auto bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

}  // namespace

int64_t reduce_number(int64_t own, Reduce op, ProcessGroup& group, flight::Where where) {
  return *all_reduce(number(own), group, op, where).const_data_ptr<int64_t>();
}

double reduce_number(double own, Reduce op, ProcessGroup& group, flight::Where where) {
  return *all_reduce(at::full({1}, own, at::kDouble), group, op, where).const_data_ptr<double>();
}

int64_t broadcast_number(int64_t own, int root, ProcessGroup& group, flight::Where where) {
  return *broadcast(number(own), root, group, where).const_data_ptr<int64_t>();
}

std::vector<int64_t> gather_numbers(int64_t own, ProcessGroup& group, flight::Where where) {
  const auto all = all_gather(number(own), group, 0, std::vector<int64_t>(group.size(), 1), where);
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

std::string broadcast_text(const std::string& own, int root, ProcessGroup& group, flight::Where where) {
  if (group.size() == 1) return own;
  const auto length = broadcast_number(static_cast<int64_t>(own.size()), root, group, where);
  const auto bytes = group.rank() == root ? bytes_of(own) : at::empty({length}, at::kByte);
  broadcast_(bytes, root, group, where);
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(length)};
}

std::string first_text(const std::string& own, ProcessGroup& group, flight::Where where) {
  const auto first = reduce_number(int64_t{own.empty() ? group.size() : group.rank()}, Reduce::min, group, where);
  return first == group.size() ? "" : broadcast_text(own, static_cast<int>(first), group, where);
}

std::vector<std::string> gather_texts(const std::string& own, ProcessGroup& group, flight::Where where) {
  const auto lengths = gather_numbers(static_cast<int64_t>(own.size()), group, where);
  const auto all = all_gather(bytes_of(own), group, 0, lengths, where);
  const auto* next = static_cast<const char*>(all.const_data_ptr());
  std::vector<std::string> texts;
  for (const auto length : lengths) {
    texts.emplace_back(next, static_cast<size_t>(length));
    next += length;
  }
  return texts;
}

}  // namespace tandem::comm
