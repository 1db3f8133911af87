#include "tandem/base/context.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tandem {
namespace {

constexpr auto kKind = c10::DebugInfoKind::TEST_INFO;  // libtorch's own code does not use this kind

struct Info : c10::DebugInfoBase {
  explicit Info(const Context& of) : context(of), block(of.block) {}

  const Context context;
  std::atomic<int> block;  // overrides that of the context
};

Info* current_info() { return static_cast<Info*>(c10::ThreadLocalDebugInfo::get(kKind)); }

/// Never freed: threads may read it until the process ends. Each holds the one before, so that none counts as lost.
struct ProcessContext {
  Context context;
  const ProcessContext* before = nullptr;
};

std::atomic<const ProcessContext*>& process_context() {
  static std::atomic<const ProcessContext*> last = new ProcessContext;
  return last;
}

template <class T>
Context changed(T Context::*member, T value) {
  auto context = current_context();
  context.*member = value;
  return context;
}

Context of_rank(int rank) {
  TORCH_CHECK_INDEX(rank >= 0 && rank < Context::kMaxRanks, "context: rank is ", rank, ", wanted 0..",
                    Context::kMaxRanks - 1);
  return changed(&Context::rank, rank);
}

/// The names of blocks, in order of their numbers.
struct Blocks {
  std::mutex mutex;
  std::vector<std::string> names = {""};
  std::map<std::string, int, std::less<>> numbers = {{"", 0}};
};

Blocks& blocks() {
  static auto* all = new Blocks;  // used until the last tensor is freed
  return *all;
}

}  // namespace

Context current_context() {
  const auto* info = current_info();
  if (info == nullptr) return process_context().load()->context;
  auto context = info->context;
  context.block = info->block.load(std::memory_order_relaxed);
  return context;
}

void set_process_context(const Context& context) {
  auto* own = new ProcessContext{context, process_context().load()};
  while (!process_context().compare_exchange_weak(own->before, own)) {
  }
}

bool is_thread_rank() {
  const int rank = current_context().rank;
  return rank >= 0 && rank < Context::kMaxRanks && rank != process_context().load()->context.rank;
}

ContextScope::ContextScope(const Context& context) : guard_(kKind, std::make_shared<Info>(context)) {}

RankScope::RankScope(int rank) : ContextScope(of_rank(rank)) {}
CategoryScope::CategoryScope(Category category) : ContextScope(changed(&Context::category, category)) {}
PhaseScope::PhaseScope(Phase phase) : ContextScope(changed(&Context::phase, phase)) {}
BlockScope::BlockScope(int block) : ContextScope(changed(&Context::block, block)) {}

void enter_block(int block) {
  if (auto* info = current_info()) info->block.store(block, std::memory_order_relaxed);
}

int block_number(std::string_view name) {
  auto& all = blocks();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.numbers.find(name); found != all.numbers.end()) return found->second;
  const int number = static_cast<int>(all.names.size());
  all.names.emplace_back(name);
  all.numbers.emplace(name, number);
  return number;
}

std::string block_name(int number) {
  auto& all = blocks();
  const std::lock_guard lock(all.mutex);
  TORCH_CHECK_INDEX(number >= 0 && number < static_cast<int>(all.names.size()), "block: number is ", number,
                    ", wanted 0..", all.names.size() - 1);
  return all.names[static_cast<size_t>(number)];
}

}  // namespace tandem
