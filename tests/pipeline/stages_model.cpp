#include "tests/pipeline/stages_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tandem/comm/split.h"

namespace tandem::pipeline {

Tensor images_of(int64_t rows, int micro_batch) {
  return at::sin(at::arange(rows * 2 * 5 * 4, at::kDouble) + micro_batch).view({rows, 2, 5, 4});
}

memory::Block loss_block() {
  return memory::make_block("loss", {}, [](const Tensor& y) { return (y * y.cos()).sum(); });
}

std::vector<int64_t> sizes_of(int stages) {
  auto sizes = comm::split_sizes(8, stages);
  if (stages > 1 && sizes[0] > 1) --sizes[0], ++sizes.back();
  return sizes;
}

std::map<int, double> train_alone(Model& model, const std::vector<int64_t>& rows) {
  std::map<int, double> losses;
  for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
    Flow flow = {images_of(rows[i], i)};
    for (const auto& block : model.blocks) flow = block.forward(flow);
    const auto loss = loss_block().forward(flow)[0];
    losses[i] = loss.item<double>();
    (loss * 0.5).backward();
  }
  return losses;
}

void expect_gradients(Model& own, Model& alone, const std::vector<int>& stages, const std::vector<int64_t>& sizes,
                      const std::string& what) {
  static const std::vector<std::vector<std::string>> kOf = {{"stem.weight", "stem.bias"},
                                                            {"inner.weight"},
                                                            {"inner.weight"},
                                                            {"wide.weight", "wide.bias"},
                                                            {"twice.weight", "twice.bias"},
                                                            {"again.weight", "again.bias"},
                                                            {"foreign.weight"},
                                                            {"last.weight"}};
  const auto parameters = own.named_parameters(), expected = alone.named_parameters();
  for (const int stage : stages) {
    const auto first = std::accumulate(sizes.begin(), sizes.begin() + stage, int64_t{0});
    for (int64_t block = first; block < first + sizes[stage]; ++block) {
      for (const auto& name : kOf[block]) {
        ASSERT_TRUE(parameters[name].grad().defined()) << what << " " << name;
        EXPECT_LE((parameters[name].grad() - expected[name].grad()).abs().max().item<double>(), 1e-14)
            << what << " " << name;
      }
    }
  }
}

}  // namespace tandem::pipeline
