#include "tandem/parallel/detail/messages.h"

#include <ATen/ATen.h>

#include <map>

#include "tandem/base/context.h"

namespace tandem::parallel::detail {
namespace {

using Send = std::function<void(const Tensor& message)>;

/// Tensors of one type, as one message.
void send_flat(const std::vector<Tensor>& tensors, const Send& send) {
  if (tensors.size() == 1 && tensors[0].is_contiguous()) return send(tensors[0].detach().view({-1}));
  std::vector<Tensor> flat_parts;
  for (const auto& tensor : tensors) flat_parts.push_back(tensor.detach().reshape({-1}));
  const auto flat = at::cat(flat_parts);
  send(flat);
  int64_t at = 0;
  for (const auto& tensor : tensors) {
    tensor.detach().copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

}  // namespace

void for_each_message(const std::vector<Tensor>& tensors, const Send& send) {
  const at::NoGradGuard no_grad;
  const CategoryScope scope(Category::communication);
  std::map<at::ScalarType, std::vector<Tensor>> by_type;
  for (const auto& tensor : tensors) by_type[tensor.scalar_type()].push_back(tensor);
  for (const auto& [type, members] : by_type) {
    std::vector<Tensor> message;
    int64_t size = 0;
    for (const auto& tensor : members) {
      const auto own = static_cast<int64_t>(tensor.nbytes());
      if (!message.empty() && size + own > kMessageBytes) {
        send_flat(message, send);
        message.clear();
        size = 0;
      }
      message.push_back(tensor);
      size += own;
    }
    send_flat(message, send);
  }
}

}  // namespace tandem::parallel::detail
