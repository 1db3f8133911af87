#include "tandem/base/threads.h"

#include <latch>
#include <vector>

namespace tandem {
namespace {

thread_local bool is_handled = false;

}  // namespace

bool is_refusal_handled() noexcept { return is_handled; }

detail::RefusalScope::RefusalScope() noexcept { is_handled = true; }
detail::RefusalScope::~RefusalScope() { is_handled = false; }

void try_threads(int count) {
  std::latch all_run(1);
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.push_back(start_thread<std::jthread>([&] { all_run.wait(); }));
  } catch (...) {
    all_run.count_down();
    threads.clear();  // joins, while the latch is there
    throw;
  }
  all_run.count_down();
}

}  // namespace tandem
