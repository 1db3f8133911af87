#pragma once
#include <c10/util/ThreadLocalDebugInfo.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/base/category.h"

namespace tandem::memory {
class StatisticsBook;
}

namespace tandem {

/// The part of a training step that work belongs to.
enum class Phase : uint8_t { forward, backward, optimizer };
inline constexpr std::array<std::string_view, 3> kPhaseNames = {"forward", "backward", "optimizer"};

/// What a forward in training does with the running statistics of batch normalisation: moves them; notes its own in a
/// book (Context::book), by which they move once, when all micro-batches of a step are known; holds them (a second
/// forward of the same images, which reads them and leaves them their bits); or does not touch them (a replica beside
/// another one of the same model, which may be moving them).
enum class BatchStatistics : uint8_t { move, defer, hold, leave };

/// What a piece of work belongs to. The memory meter, the wire meter, the flight recorder and random numbers read it
/// here, so that no function passes it on.
///
///   thread of rank 1 ── ContextScope ── forward ── backward ──────────┐  the same context in all of these
///                                          │           └ autograd's threads, nested backward
///                                          └ c10's and Gloo's threads
///
/// libtorch carries it from a thread to those that work for it, with its own thread-local state. It does not carry it
/// into std::thread, at::parallel_for's other threads, c10::ThreadPool::run and callbacks of a future: take
/// current_context() outside and open a ContextScope inside. Reading it takes about 6 ns, a scope about 0.2 us.
struct Context {
  static constexpr int kNobody = -1, kMaxRanks = 1024;
  static constexpr int64_t kRehearsal = -1;  // whatever a step draws must be what needs most memory

  int rank = kNobody;  // whose memory; of the world
  Category category = Category::other;
  Phase phase = Phase::forward;
  BatchStatistics statistics = BatchStatistics::move;
  memory::StatisticsBook* book = nullptr;  // of BatchStatistics::defer
  int block = 0;                           // of the model: block_number() of its name
  uint64_t seed = 0;
  int64_t step = 0;          // of training, from 0; kRehearsal: of none
  int64_t first_sample = 0;  // of the batch, as data::Batch counts them
  double progress = 0;       // share of training's steps that are done, below 1

  /// Whether a forward is that of new images, or else one of the same images, or of a replica.
  bool has_new_images() const { return statistics == BatchStatistics::move || statistics == BatchStatistics::defer; }

  bool operator==(const Context&) const = default;
};

/// The context of the calling thread: of its innermost scope, or else of its process.
Context current_context();

/// The context of threads that have none, for the rest of the process: of a process that is one rank. Without this call
/// such threads belong to nobody.
void set_process_context(const Context& context);

/// True if the calling thread works for a rank, and the process as a whole does not: this process has a thread for each
/// of several ranks, which share what a process has one of, such as torch's default generator.
bool is_thread_rank();

/// While the object lives, the calling thread works in `context`. Scopes nest.
class ContextScope {
 public:
  explicit ContextScope(const Context& context);
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  c10::DebugInfoGuard guard_;
};

/// The current context with one value changed.
struct RankScope : ContextScope {
  explicit RankScope(int rank);  // 0..kMaxRanks - 1
};
struct CategoryScope : ContextScope {
  explicit CategoryScope(Category category);
};
struct PhaseScope : ContextScope {
  explicit PhaseScope(Phase phase);
};
struct BlockScope : ContextScope {
  explicit BlockScope(int block);
};

/// Changes the block of the innermost scope, until that scope ends: for backward, where the work of one block follows
/// that of another on threads of libtorch. Has no effect outside a scope.
void enter_block(int block);

/// The number of a block's name: equal names have equal numbers in the whole process. The empty name, of work that
/// belongs to no block, has number 0.
int block_number(std::string_view name);
std::string block_name(int number);

}  // namespace tandem
