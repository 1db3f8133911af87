#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

// Sleep and wake-up of threads of several processes that map the same word.
namespace tandem::comm {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

/// Returns at once if the word is not `seen` any more.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::milliseconds most) {
  const timespec time = {most.count() / 1000, (most.count() % 1000) * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tandem::comm
