#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/base/tensor.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/detail/group_calls.h"
#include "tandem/comm/detail/nccl.h"
#include "tandem/comm/process_group.h"

namespace tandem::comm {
namespace {

/// One GPU holds one rank of NCCL, so that one rank is what one GPU can show.
TEST(Nccl, ACudaTensorTravelsByNccl) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU here";
  detail::choose_gpu(0, 1);
  const auto connect =
      process_connect(c10::make_intrusive<c10d::HashStore>(), std::chrono::seconds(60), Transport::sockets);
  ProcessGroup group(connect, "world", {0}, 0);
  auto& backend = group.calls().backend(c10::DeviceType::CUDA);
  EXPECT_EQ(backend.getBackendName(), "nccl");
  std::vector<Tensor> x = {at::arange(5, at::device(at::kCUDA).dtype(at::kFloat))};
  backend.allreduce(x)->wait();
  EXPECT_TRUE(x[0].cpu().equal(at::arange(5, at::kFloat)));
}

}  // namespace
}  // namespace tandem::comm
