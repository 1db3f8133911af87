#include "tandem/memory/meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "tandem/base/ownership.h"
#include "tandem/memory/detail/book.h"
#include "tandem/memory/detail/cuda_records.h"
#include "tandem/memory/detail/machine_memory.h"
#include "tandem/memory/device_meter.h"

namespace tandem::memory {
namespace {

using detail::Book;

constexpr int kMaxProbes = 4096;
constexpr int kNobodys = Context::kMaxRanks + kMaxProbes;  // first the ranks, then the probes
constexpr size_t kAlignment = 64;
constexpr uint64_t kMagic = 0x7461'6e64'656d'6d65;  // marks memory of this allocator
constexpr uint8_t kTopPriority = 255;

/// Where an allocation is counted.
struct Record {
  Book* book = nullptr;  // null: nowhere
  detail::Entry entry = {};
};

/// Stored in the 64 bytes before the data, so that freeing needs no table.
struct alignas(kAlignment) Header {
  uint64_t magic;
  Record record;
};
static_assert(sizeof(Header) == kAlignment);

std::atomic<c10::DeviceType> counted{c10::DeviceType::CPU};

class Books {
 public:
  Book& of(int rank) { return books_[rank == Context::kNobody ? kNobodys : rank]; }

  /// The number of an empty book of a probe; the caller must give it back.
  int take() {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < kMaxProbes; ++i) {
      auto& book = books_[Context::kMaxRanks + i];
      if (is_taken_[i] || !book.reset_if_empty()) continue;
      is_taken_[i] = true;
      return Context::kMaxRanks + i;
    }
    TORCH_CHECK(false, "memory meter: ", kMaxProbes, " probes are open or hold memory, wanted fewer");
  }
  void give_back(int number) {
    const std::lock_guard lock(mutex_);
    is_taken_[number - Context::kMaxRanks] = false;
  }

 private:
  std::array<Book, kNobodys + 1> books_;
  std::mutex mutex_;
  std::array<bool, kMaxProbes> is_taken_{};
};

Books& books() {
  static auto* all = new Books;  // tensors may be freed after static destructors have run
  return *all;
}

std::string place_text(const Context& context) {
  const std::string category(kCategoryNames[static_cast<size_t>(context.category)]);
  if (context.rank == Context::kNobody) return category + " of no rank";
  const bool is_rank = context.rank < Context::kMaxRanks;
  return category + (is_rank ? " of rank " : " of probe ") + std::to_string(context.rank % Context::kMaxRanks);
}

[[noreturn]] void refuse(const Book& book, const Context& context, int64_t bytes) {
  const auto block = block_name(context.block);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "memory: ", bytes, " bytes more for ", place_text(context),
                   block.empty() ? "" : ", block '" + block + "',", " are ",
                   book.read().live_bytes() + bytes - book.limit().value_or(0), " above its limit of ",
                   book.limit().value_or(0), " bytes");
}

/// What all books hold together, and the most that they may: a process that needs more than the machine had free at the
/// start would be killed without a word.
class Machine {
 public:
  bool claim(int64_t bytes) {
    if (has_refused_ && bytes >= kLarge) malloc_trim(0);  // what a refused thread has freed is still in its heap
    if (bytes <= most_ - claimed_.fetch_add(bytes)) return true;
    give_back(bytes);
    has_refused_ = true;
    return false;
  }
  void give_back(int64_t bytes) { claimed_.fetch_sub(bytes); }

  [[noreturn]] void refuse(const Context& context, int64_t bytes) const {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "memory: ", bytes, " bytes more for ", place_text(context), ", with ",
                     claimed_.load(), " that this process holds, are more than the ", most_,
                     " bytes that this machine has free: make the job smaller, or use more machines");
  }

 private:
  static constexpr int64_t kLarge = 1 << 20;

  const int64_t most_ = detail::machine_memory();
  std::atomic<bool> has_refused_ = false;
  std::atomic<int64_t> claimed_ = 0;
};

Machine& machine() {
  static auto* one = new Machine;  // as the books
  return *one;
}

Header* header_of(void* data) { return reinterpret_cast<Header*>(data) - 1; }

/// Counts an allocation for the calling thread's context. Throws where a rank's limit leaves no room for it.
Record count(int64_t bytes, const Context& context, bool may_refuse) {
  auto& book = books().of(context.rank);
  Record record = {&book, {bytes, 0, context.block, context.category}};
  if (!book.add(record.entry, may_refuse)) refuse(book, context, bytes);
  return record;
}

/// The allocations of devices, whose memory has no room for a header.
class DeviceRecords {
 public:
  void add(const void* address, const Record& record) {
    const std::lock_guard lock(mutex_);
    all_.insert_or_assign(address, record);
  }

  std::optional<Record> take(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(address);
    if (found == all_.end()) return std::nullopt;
    const auto record = found->second;
    all_.erase(found);
    return record;
  }

  /// Stays where it is while the memory is not freed.
  Record* find(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(address);
    return found != all_.end() ? &found->second : nullptr;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Record> all_;
};

DeviceRecords& device_records() {
  static auto* all = new DeviceRecords;  // as the books
  return *all;
}

class MeteredAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    const auto context = current_context();
    void* block = nullptr;
    const bool overflows = bytes > SIZE_MAX / 2 - sizeof(Header) - kAlignment;
    if (!overflows && !machine().claim(static_cast<int64_t>(bytes))) machine().refuse(context, bytes);
    if (overflows || posix_memalign(&block, kAlignment, bytes + sizeof(Header)) != 0) {
      if (!overflows) machine().give_back(static_cast<int64_t>(bytes));
      TORCH_CHECK_WITH(OutOfMemoryError, false, "memory: cannot allocate ", bytes, " bytes for ", place_text(context));
    }
    Record record = {nullptr, {static_cast<int64_t>(bytes), 0, context.block, context.category}};
    if (counted.load(std::memory_order_relaxed) == c10::DeviceType::CPU) {
      try {
        record = count(record.entry.bytes, context, /*may_refuse=*/true);
      } catch (...) {
        std::free(block);
        machine().give_back(record.entry.bytes);
        throw;
      }
    }
    auto* header = new (block) Header{kMagic, record};
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* target, const void* source, size_t bytes) const override { std::memcpy(target, source, bytes); }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    auto* header = header_of(data);
    const auto& [book, entry] = header->record;
    if (book != nullptr) book->remove(entry);
    machine().give_back(entry.bytes);
    header->magic = 0;
    std::free(header);
  }
};

MeteredAllocator* installed = nullptr;

/// Null for memory that is not counted.
Record* record_of(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !installed) return nullptr;
  const auto& pointer = tensor.storage().data_ptr();
  if (pointer.get() == nullptr) return nullptr;
  if (!tensor.is_cpu()) return device_records().find(pointer.get());
  if (pointer.get_deleter() != installed->raw_deleter()) return nullptr;
  auto* header = header_of(pointer.get_context());
  return header->magic == kMagic && header->record.book != nullptr ? &header->record : nullptr;
}

Context of_probe(int number) {
  auto context = current_context();
  context.rank = number;
  return context;
}

/// What adopt() does while memory is metered.
void move_to_own_book(const Tensor& tensor) {
  auto* record = record_of(tensor);
  const auto context = current_context();
  if (record == nullptr || record->book == &books().of(context.rank)) return;
  const auto own = count(record->entry.bytes, context, /*may_refuse=*/true);
  record->book->remove(record->entry);
  *record = own;
}

}  // namespace

int64_t Account::live_bytes() const { return total_of(live); }
int64_t Account::peak_bytes() const { return total_of(at_peak); }

void Account::add(Category category, int64_t bytes) {
  const auto place = static_cast<size_t>(category);
  if (blocks.empty() || blocks.front().block != 0) blocks.insert(blocks.begin(), BlockBytes());
  live[place] += bytes;
  blocks.front().live[place] += bytes;
}

void install_meter() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Each step allocates the same sizes again: keep them in the heap instead of mapping new, zeroed pages. A thread's
    // heap is a row of 64 MiB, each given back when it is empty unless it is no longer than the pad.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, -1);
    mallopt(M_TOP_PAD, 64 << 20);
    machine();
    installed = new MeteredAllocator;
    c10::SetCPUAllocator(installed, kTopPriority);
    set_adopt(move_to_own_book);
  });
}

bool meter_is_installed() { return installed != nullptr; }

ProbeScope::ProbeScope() : number_(books().take()), scope_(of_probe(number_)) {}
ProbeScope::~ProbeScope() { books().give_back(number_); }

Account ProbeScope::account() const { return books().of(number_).read(); }
void ProbeScope::reset_peak() { books().of(number_).reset_peak(); }

struct PeakWatch::Impl {
  explicit Impl(Book& of) : book(of) { book.watch(peak); }
  ~Impl() { book.forget(peak); }

  Book& book;
  detail::Peak peak;
};

PeakWatch::PeakWatch(int rank) : impl_(std::make_unique<Impl>(books().of(rank))) {}
PeakWatch::~PeakWatch() = default;
void PeakWatch::begin() { impl_->book.begin(impl_->peak); }
void PeakWatch::end() { impl_->book.end(impl_->peak); }
Account PeakWatch::account() const { return impl_->book.read(impl_->peak); }

EventLog::EventLog(int rank, int64_t end_step) : rank_(rank) { books().of(rank).record(&events_, end_step); }
EventLog::~EventLog() { books().of(rank_).record(nullptr, 0); }
size_t EventLog::size() const { return books().of(rank_).recorded(events_); }
const std::vector<Event>& EventLog::end() {
  books().of(rank_).record(nullptr, 0);
  return events_;
}

LimitScope::LimitScope(int rank, int64_t bytes) : rank_(rank) { books().of(rank).set_limit(bytes); }
LimitScope::~LimitScope() { books().of(rank_).set_limit(std::nullopt); }
std::optional<Account> LimitScope::refused() const { return books().of(rank_).refused(); }

void tag(const Tensor& tensor, Category category) {
  if (auto* record = record_of(tensor)) record->book->move(record->entry, category, record->entry.block);
}

void tag(const Tensor& tensor, Category category, int block) {
  if (auto* record = record_of(tensor)) record->book->move(record->entry, category, block);
}

uint64_t allocation_of(const Tensor& tensor) {
  const auto* record = record_of(tensor);
  return record != nullptr ? record->entry.number : 0;
}

int block_of(const Tensor& tensor) {
  const auto* record = record_of(tensor);
  return record != nullptr ? record->entry.block : 0;
}

void meter_memory_of(c10::DeviceType type) {
  if (!installed) return;
  if (type == c10::DeviceType::CUDA) detail::note_cuda_memory();
  counted = type;
}

void note_allocation(const void* address, size_t bytes, bool may_refuse) {
  if (!installed || counted == c10::DeviceType::CPU) return;
  device_records().add(address, count(static_cast<int64_t>(bytes), current_context(), may_refuse));
}

void note_release(const void* address) {
  if (!installed) return;
  if (const auto record = device_records().take(address)) record->book->remove(record->entry);
}

Account account(int rank) { return books().of(rank).read(); }
void reset_peak(int rank) { books().of(rank).reset_peak(); }

}  // namespace tandem::memory
