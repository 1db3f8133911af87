#include "tandem/memory/block_runner.h"

namespace tandem::memory {
namespace {

/// The neighbours from `first` on that have its runner.
Chain neighbours_of(const Chain& chain, size_t first) {
  Chain same;
  auto* runner = chain.blocks[first].runner;
  for (size_t i = first; i < chain.blocks.size() && chain.blocks[i].runner == runner; ++i) {
    same.blocks.push_back(chain.blocks[i]);
    same.blocks.back().runner = nullptr;
  }
  return same;
}

Block block_of(BlockRunner& runner, Chain blocks) {
  Block block{.name = blocks.blocks.back().name, .modules = {}, .forward = {}};
  for (const auto& one : blocks.blocks) {
    block.modules.insert(block.modules.end(), one.modules.begin(), one.modules.end());
  }
  block.forward = [&runner, blocks = std::move(blocks)](const Flow& input) { return runner.run(blocks, input); };
  return block;
}

}  // namespace

Chain by_runners(const Chain& chain) {
  Chain all;
  for (size_t i = 0; i < chain.blocks.size();) {
    auto* runner = chain.blocks[i].runner;
    if (runner == nullptr) {
      all.blocks.push_back(chain.blocks[i++]);
      continue;
    }
    auto blocks = neighbours_of(chain, i);
    i += blocks.blocks.size();
    all.blocks.push_back(block_of(*runner, std::move(blocks)));
  }
  return all;
}

}  // namespace tandem::memory
