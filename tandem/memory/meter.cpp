#include "tandem/memory/meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>

namespace tandem::memory {
namespace {

constexpr int kMaxRanks = 1024, kMaxProbes = 64;  // one book each: first the ranks, then the probes
constexpr size_t kAlignment = 64;
constexpr uint64_t kMagic = 0x7461'6e64'656d'6d65;  // marks memory of this allocator
constexpr uint8_t kTopPriority = 255;

thread_local int current_book = 0;
thread_local Category current_category = Category::other;

/// Stored in the 64 bytes before the data, so that freeing needs no table.
struct alignas(kAlignment) Header {
  uint64_t magic;
  int64_t bytes;
  int32_t book;
  Category category;
};
static_assert(sizeof(Header) == kAlignment);

class Books {
 public:
  void add(int number, Category category, int64_t bytes) {
    auto& book = books_[number];
    const std::lock_guard lock(book.mutex);
    book.account.live[static_cast<int>(category)] += bytes;
    book.live_bytes += bytes;
    if (book.live_bytes <= book.peak_bytes) return;
    book.peak_bytes = book.live_bytes;
    book.account.at_peak = book.account.live;
  }
  void move(int number, Category from, Category to, int64_t bytes) {
    auto& book = books_[number];
    const std::lock_guard lock(book.mutex);
    book.account.live[static_cast<int>(from)] -= bytes;
    book.account.live[static_cast<int>(to)] += bytes;
  }
  Account read(int number) {
    auto& book = books_[number];
    const std::lock_guard lock(book.mutex);
    return book.account;
  }
  void reset_peak(int number) {
    auto& book = books_[number];
    const std::lock_guard lock(book.mutex);
    book.peak_bytes = book.live_bytes;
    book.account.at_peak = book.account.live;
  }

  /// Returns an empty book of a probe; the caller must give it back.
  int take() {
    for (int number = kMaxRanks; number < kMaxRanks + kMaxProbes; ++number) {
      auto& book = books_[number];
      const std::lock_guard lock(book.mutex);
      if (book.is_taken || book.live_bytes != 0) continue;
      book.is_taken = true;
      book.peak_bytes = 0;
      book.account = {};
      return number;
    }
    TORCH_CHECK(false, "memory meter: ", kMaxProbes, " probes are open or hold memory, wanted fewer");
  }
  void give_back(int number) {
    auto& book = books_[number];
    const std::lock_guard lock(book.mutex);
    book.is_taken = false;
  }

 private:
  struct alignas(kAlignment) Book {
    std::mutex mutex;
    Account account;
    int64_t live_bytes = 0, peak_bytes = 0;
    bool is_taken = false;  // by a probe
  };
  std::array<Book, kMaxRanks + kMaxProbes> books_;
};

Books& books() {
  static auto* all = new Books;  // tensors may be freed after static destructors have run
  return *all;
}

Header* header_of(void* data) { return reinterpret_cast<Header*>(data) - 1; }

class MeteredAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    void* block = nullptr;
    const bool overflows = bytes > SIZE_MAX - sizeof(Header) - kAlignment;
    if (overflows || posix_memalign(&block, kAlignment, bytes + sizeof(Header)) != 0) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "memory: cannot allocate ", bytes, " bytes for ",
                       kCategoryNames[static_cast<int>(current_category)],
                       current_book < kMaxRanks ? " of rank " : " of probe ", current_book % kMaxRanks);
    }
    auto* header = new (block) Header{kMagic, static_cast<int64_t>(bytes), current_book, current_category};
    books().add(header->book, header->category, header->bytes);
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* target, const void* source, size_t bytes) const override { std::memcpy(target, source, bytes); }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    auto* header = header_of(data);
    books().add(header->book, header->category, -header->bytes);
    header->magic = 0;
    std::free(header);
  }
};

MeteredAllocator* installed = nullptr;

}  // namespace

int64_t Account::live_bytes() const { return total_of(live); }
int64_t Account::peak_bytes() const { return total_of(at_peak); }

void install_meter() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Each step allocates the same sizes again: keep them in the heap instead of mapping new, zeroed pages.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, -1);
    installed = new MeteredAllocator;
    c10::SetCPUAllocator(installed, kTopPriority);
  });
}

bool meter_is_installed() { return installed != nullptr; }

RankScope::RankScope(int rank) : before_(current_book) {
  TORCH_CHECK_INDEX(rank >= 0 && rank < kMaxRanks, "memory meter: rank is ", rank, ", wanted 0..", kMaxRanks - 1);
  current_book = rank;
}
RankScope::~RankScope() { current_book = before_; }

ProbeScope::ProbeScope() : book_(books().take()), before_(current_book) { current_book = book_; }
ProbeScope::~ProbeScope() {
  current_book = before_;
  books().give_back(book_);
}

Account ProbeScope::account() const { return books().read(book_); }
void ProbeScope::reset_peak() { books().reset_peak(book_); }

Scope::Scope(Category category) : before_(current_category) { current_category = category; }
Scope::~Scope() { current_category = before_; }

Owner current_owner() { return {current_book, current_category}; }

OwnerScope::OwnerScope(const Owner& owner) : before_(current_owner()) {
  current_book = owner.book;
  current_category = owner.category;
}
OwnerScope::~OwnerScope() {
  current_book = before_.book;
  current_category = before_.category;
}

void tag(const Tensor& tensor, Category category) {
  if (!tensor.defined() || !tensor.device().is_cpu() || !installed) return;
  const auto& pointer = tensor.storage().data_ptr();
  if (pointer.get() == nullptr || pointer.get_deleter() != installed->raw_deleter()) return;
  auto* header = header_of(pointer.get_context());
  if (header->magic != kMagic || header->category == category) return;
  books().move(header->book, header->category, category, header->bytes);
  header->category = category;
}

Account account(int rank) { return books().read(rank); }
void reset_peak(int rank) { books().reset_peak(rank); }

}  // namespace tandem::memory
