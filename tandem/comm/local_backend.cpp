#include "tandem/comm/local_backend.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <cstring>
#include <numeric>

#include "tandem/comm/split.h"

namespace tandem::comm {
namespace {

using c10d::ReduceOp;

// The sum of a slice is built in a buffer that stays in the first-level cache, then written to every rank once.
constexpr int64_t kBufferBytes = 16 * 1024;

class FinishedWork : public c10d::Work {
 public:
  FinishedWork(int rank, c10d::OpType type, std::vector<at::Tensor> results)
      : Work(rank, type), results_(std::move(results)) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future_->markCompleted(c10::IValue(results_));
    finish();
  }
  bool wait(std::chrono::milliseconds) override { return true; }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<at::Tensor> results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

uint64_t signature_of(const at::Tensor& tensor, uint64_t detail) {
  return (static_cast<uint64_t>(tensor.numel()) << 16) ^ (static_cast<uint64_t>(tensor.scalar_type()) << 8) ^ detail;
}

void check_tensor(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), operation, ": tensor is on ", tensor.device(), ", wanted cpu");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), operation, ": tensor is not contiguous");
}

template <class T, class A>
void accumulate(A* sum, const T* part, int64_t n, ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::MAX:
      for (int64_t i = 0; i < n; ++i) sum[i] = std::max(sum[i], static_cast<A>(part[i]));
      break;
    case ReduceOp::MIN:
      for (int64_t i = 0; i < n; ++i) sum[i] = std::min(sum[i], static_cast<A>(part[i]));
      break;
    default:
      for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<A>(part[i]);
  }
}

/// This rank's slice of everyone's tensor: reduced in rank order, written to all.
template <class T>
void reduce_slice(const LocalExchange& exchange, int64_t begin, int64_t end, ReduceOp::RedOpType op) {
  using A = at::opmath_type<T>;
  constexpr int64_t kBlock = kBufferBytes / sizeof(A);
  alignas(64) A sum[kBlock];
  const A divisor = op == ReduceOp::AVG ? static_cast<A>(exchange.size()) : A(1);
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    const T* first = static_cast<const T*>(exchange.call(0).input) + at;
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
    for (int rank = 1; rank < exchange.size(); ++rank) {
      accumulate(sum, static_cast<const T*>(exchange.call(rank).input) + at, n, op);
    }
    if (op == ReduceOp::AVG) {
      for (int64_t i = 0; i < n; ++i) sum[i] /= divisor;
    }
    T* own = static_cast<T*>(exchange.call(0).output) + at;
    for (int64_t i = 0; i < n; ++i) own[i] = static_cast<T>(sum[i]);
    for (int rank = 1; rank < exchange.size(); ++rank) {
      std::memcpy(static_cast<T*>(exchange.call(rank).output) + at, own, n * sizeof(T));
    }
  }
}

}  // namespace

LocalBackend::LocalBackend(std::shared_ptr<LocalExchange> exchange, int rank)
    : Backend(rank, exchange->size()), exchange_(std::move(exchange)) {}

template <class Body>
c10::intrusive_ptr<c10d::Work> LocalBackend::run(const LocalCall& call, c10d::OpType type,
                                                 std::vector<at::Tensor> results, Body body) {
  try {
    exchange_->meet(getRank(), call);
    body();
    exchange_->part(getRank());
  } catch (const LocalExchange::Failure& failure) {
    // A rank that leaves early would let the others work on memory that is gone: they are told to leave as well.
    exchange_->abort(failure.text);
    TORCH_CHECK_WITH(DistBackendError, false, call.operation, ": ", failure.text);
  }
  return c10::make_intrusive<FinishedWork>(getRank(), type, std::move(results));
}

c10::intrusive_ptr<c10d::Work> LocalBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                       const c10d::BroadcastOptions& options) {
  auto& tensor = tensors.at(0);
  check_tensor(tensor, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  const LocalCall call = {"broadcast", signature_of(tensor, root + 1), tensor.data_ptr(), tensor.data_ptr()};
  return run(call, c10d::OpType::BROADCAST, {tensor}, [&] {
    if (getRank() != root) std::memcpy(tensor.data_ptr(), exchange_->call(root).input, tensor.nbytes());
  });
}

c10::intrusive_ptr<c10d::Work> LocalBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                       const c10d::AllreduceOptions& options) {
  auto& tensor = tensors.at(0);
  check_tensor(tensor, "all_reduce");
  const ReduceOp::RedOpType op = options.reduceOp;
  TORCH_CHECK_VALUE(op == ReduceOp::SUM || op == ReduceOp::AVG || op == ReduceOp::MAX || op == ReduceOp::MIN,
                    "all_reduce: reduction is number ", static_cast<int>(op), ", wanted sum, mean, max or min");
  const LocalCall call = {"all_reduce", signature_of(tensor, op), tensor.data_ptr(), tensor.data_ptr()};
  const auto [begin, end] = split_range(tensor.numel(), getSize(), getRank());
  return run(call, c10d::OpType::ALLREDUCE, {tensor}, [&, begin = begin, end = end] {
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, tensor.scalar_type(), "all_reduce",
                               [&] { reduce_slice<scalar_t>(*exchange_, begin, end, op); });
  });
}

c10::intrusive_ptr<c10d::Work> LocalBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                             const c10d::AllgatherOptions&) {
  check_tensor(input, "all_gather");
  check_tensor(output, "all_gather");
  TORCH_CHECK_VALUE(output.numel() == input.numel() * getSize(), "all_gather: output has ", output.numel(),
                    " elements, wanted ", input.numel() * getSize());
  const LocalCall call = {"all_gather", signature_of(input, 0), input.data_ptr(), output.data_ptr()};
  return run(call, c10d::OpType::_ALLGATHER_BASE, {output}, [&] {
    for (int rank = 0; rank < getSize(); ++rank) {
      std::memcpy(static_cast<char*>(output.data_ptr()) + rank * input.nbytes(), exchange_->call(rank).input,
                  input.nbytes());
    }
  });
}

c10::intrusive_ptr<c10d::Work> LocalBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                           std::vector<int64_t>& output_splits,
                                                           std::vector<int64_t>& input_splits,
                                                           const c10d::AllToAllOptions&) {
  check_tensor(input, "all_to_all");
  check_tensor(output, "all_to_all");
  const auto rows = [&](const at::Tensor& tensor, const std::vector<int64_t>& splits) {
    return splits.empty() ? std::vector<int64_t>(getSize(), tensor.size(0) / getSize()) : splits;
  };
  const auto sent = rows(input, input_splits), received = rows(output, output_splits);
  const auto row_bytes = [](const at::Tensor& tensor) {
    return tensor.size(0) == 0 ? 0 : static_cast<int64_t>(tensor.nbytes()) / tensor.size(0);
  };
  std::vector<int64_t> sent_bytes(getSize());
  for (int rank = 0; rank < getSize(); ++rank) sent_bytes[rank] = sent[rank] * row_bytes(input);
  const LocalCall call = {"all_to_all", static_cast<uint64_t>(input.scalar_type()), input.data_ptr(), output.data_ptr(),
                          sent_bytes.data()};
  return run(call, c10d::OpType::ALLTOALL_BASE, {output}, [&] {
    auto* target = static_cast<char*>(output.data_ptr());
    for (int rank = 0; rank < getSize(); ++rank) {
      const auto& from = exchange_->call(rank);
      const int64_t bytes = received[rank] * row_bytes(output);
      if (from.counts[getRank()] != bytes) {
        throw LocalExchange::Failure{LocalExchange::Fault::mismatch, "rank " + std::to_string(rank) + " sends " +
                                                                         std::to_string(from.counts[getRank()]) +
                                                                         " bytes, rank " + std::to_string(getRank()) +
                                                                         " awaits " + std::to_string(bytes)};
      }
      const int64_t offset = std::accumulate(from.counts, from.counts + getRank(), int64_t{0});
      if (bytes > 0) std::memcpy(target, static_cast<const char*>(from.input) + offset, bytes);
      target += bytes;
    }
  });
}

c10::intrusive_ptr<c10d::Work> LocalBackend::barrier(const c10d::BarrierOptions&) {
  return run(LocalCall{"barrier"}, c10d::OpType::BARRIER, {}, [] {});
}

}  // namespace tandem::comm
