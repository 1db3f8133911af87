#include "tandem/comm/detail/message.h"

#include <ATen/ATen.h>

#include <cstring>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tandem/comm/detail/recorded_call.h"
#include "tandem/comm/detail/staged_backend.h"
#include "tandem/comm/local/local_backend.h"
#include "tandem/comm/segments/segment_backend.h"
#include "tandem/comm/wire_bytes.h"

namespace tandem::comm::detail {
namespace {

constexpr int64_t kMostDims = 16, kMark = 0x74616e64656d;  // "tandem"

// Indices of the numbers in the header.
enum Place : int64_t { kMarkAt, kTypeAt, kFlagsAt, kDimsAt, kShapeAt, kHeadSize = kShapeAt + kMostDims };
enum Flag : int64_t { kRequiresGrad = 1, kOnCuda = 2, kChannelsLast = 4 };

// Each tag of the caller is two tags of the backend.
int head_tag(int tag) { return 2 * tag; }
int body_tag(int tag) { return 2 * tag + 1; }

flight::CallInfo info_of(const char* operation, int peer, flight::Where where) {
  flight::CallInfo call;
  call.operation = operation;
  call.peer = peer;
  call.where = where;
  return call;
}

/// Dense in the order [N, H, W, C] of memory, and in no other.
bool is_channels_last(const Tensor& x) {
  return x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && !x.is_contiguous();
}

/// The same in the order of its memory.
Tensor in_order(const Tensor& x) { return is_channels_last(x) ? x.permute({0, 2, 3, 1}) : x; }

Tensor head_of(const Message& message) {
  TORCH_CHECK_VALUE(message.tensor.dim() <= kMostDims, "send: tensor has ", message.tensor.dim(), " dims, wanted ",
                    kMostDims, " or fewer");
  auto head = at::zeros({kHeadSize}, at::kLong);
  auto* number = head.mutable_data_ptr<int64_t>();
  number[kMarkAt] = kMark;
  number[kTypeAt] = static_cast<int64_t>(message.tensor.scalar_type());
  if (message.requires_grad) number[kFlagsAt] |= kRequiresGrad;
  if (message.tensor.is_cuda()) number[kFlagsAt] |= kOnCuda;
  if (is_channels_last(message.tensor)) number[kFlagsAt] |= kChannelsLast;
  number[kDimsAt] = message.tensor.dim();
  for (int64_t i = 0; i < message.tensor.dim(); ++i) number[kShapeAt + i] = message.tensor.size(i);
  return head;
}

/// An uninitialised tensor with the header's type, shape, order of memory and kind of device.
Message message_of(const Tensor& head) {
  const auto* number = head.const_data_ptr<int64_t>();
  TORCH_CHECK_WITH(DistBackendError, number[kMarkAt] == kMark && number[kDimsAt] <= kMostDims,
                   "the message has no head of ours: the ranks' sends and receives do not match");
  const at::IntArrayRef shape(number + kShapeAt, static_cast<size_t>(number[kDimsAt]));
  const auto options =
      at::device(number[kFlagsAt] & kOnCuda ? at::kCUDA : at::kCPU).dtype(static_cast<at::ScalarType>(number[kTypeAt]));
  const auto format = number[kFlagsAt] & kChannelsLast ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return {at::empty(shape, options, format), (number[kFlagsAt] & kRequiresGrad) != 0};
}

/// The tensor that is sent for x.
Tensor sent_for(const Tensor& x, const ProcessGroup& group) {
  return is_staged(x, group) ? x.cpu().contiguous() : x.contiguous();
}

void receive_into(Tensor tensor, int from, int tag, ProcessGroup& group) {
  if (is_staged(tensor, group)) {
    const auto copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
    receive_into(copy, from, tag, group);
    tensor.copy_(copy);
    return;
  }
  std::vector<Tensor> tensors = {std::move(tensor)};
  group.calls().backend(tensors[0].device().type()).recv(tensors, from, tag)->wait();
}

using Wait = std::function<void()>;

/// Returns what waits until `tensor`, which must not change, has gone.
Wait send_out(const Tensor& tensor, int to, int tag, ProcessGroup& group) {
  std::vector<Tensor> tensors = {tensor};
  return [tensor, work = group.calls().backend(tensor.device().type()).send(tensors, to, tag)] { work->wait(); };
}

SegmentBackend::Bytes bytes_of(const Tensor& x) {
  return {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
}

/// On one host all of a message that is on the host is sent at once.
Wait start_between_processes(const Message& message, int to, int tag, ProcessGroup& group) {
  const auto head = head_of(message), body = sent_for(in_order(message.tensor), group);
  auto* segments = group.calls().segments();
  const auto none = [] {};
  if (segments != nullptr && body.is_cpu()) return segments->post(to, tag, {bytes_of(head), bytes_of(body)});
  const auto first = segments ? segments->post(to, tag, {bytes_of(head)}) : send_out(head, to, head_tag(tag), group);
  const auto second = body.numel() > 0 ? send_out(body, to, body_tag(tag), group) : none;
  return [first, second] {
    first();
    second();
  };
}

Message message_of(SegmentBackend::Bytes bytes, ProcessGroup& group) {
  const auto head = at::empty({kHeadSize}, at::kLong);
  TORCH_CHECK_WITH(DistBackendError, bytes.size() >= head.nbytes(), "the message has no head of ours");
  std::memcpy(head.mutable_data_ptr(), bytes.data(), head.nbytes());
  auto message = message_of(head);
  const auto body = bytes.subspan(head.nbytes());
  if (body.empty()) return message;
  const bool is_staged = detail::is_staged(message.tensor, group);
  const auto target = is_staged ? at::empty_like(message.tensor, at::device(at::kCPU)) : message.tensor;
  TORCH_CHECK_WITH(DistBackendError, body.size() == target.nbytes(), "the message has ", body.size(), " bytes, wanted ",
                   target.nbytes());
  std::memcpy(target.mutable_data_ptr(), body.data(), body.size());
  if (is_staged) message.tensor.copy_(target);
  return message;
}

Message receive_between_processes(int from, int tag, ProcessGroup& group) {
  Message message;
  bool is_whole = false;
  if (auto* segments = group.calls().segments()) {
    segments->take(from, tag, [&](SegmentBackend::Bytes bytes) {
      message = message_of(bytes, group);
      is_whole = bytes.size() > kHeadSize * sizeof(int64_t);
    });
  } else {
    const auto head = at::zeros({kHeadSize}, at::kLong);
    receive_into(head, from, head_tag(tag), group);
    message = message_of(head);
  }
  if (!is_whole && message.tensor.numel() > 0) receive_into(in_order(message.tensor), from, body_tag(tag), group);
  return message;
}

}  // namespace

Handle start_send(Message message, int to, int tag, ProcessGroup& group, flight::Where where) {
  auto info = info_of("send", to, where);
  info.shape = message.tensor.sizes().vec();
  info.type = c10::toString(message.tensor.scalar_type());
  const auto bytes = WireBytes{group.rank(), group.size()}.send(to, static_cast<int64_t>(message.tensor.nbytes()));
  const RecordedCall call(group, std::move(info), bytes, true);
  Wait wait = [] {};
  call.run([&] {
    if (group.calls().local()) {
      return group.calls().local()->hand_over(std::move(message.tensor), message.requires_grad, to, tag);
    }
    wait = start_between_processes(message, to, tag, group);
  });
  return Handle([call, wait] {
    call.run(wait);
    call.end();
    return Tensor();
  });
}

Message receive(int from, int tag, ProcessGroup& group, flight::Where where) {
  const RecordedCall call(group, info_of("recv", from, where), WireBytes{group.rank(), group.size()}.nothing(), true);
  Message message;
  call.run([&] {
    if (group.calls().local()) {
      std::tie(message.tensor, message.requires_grad) = group.calls().local()->take_over(from, tag);
    } else {
      message = receive_between_processes(from, tag, group);
    }
  });
  call.end();
  return message;
}

}  // namespace tandem::comm::detail
