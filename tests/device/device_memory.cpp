#include "tests/device/device_memory.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "tandem/memory/device_meter.h"
#include "tests/device/delayed_streams.h"

namespace tandem::test {
namespace {

using Memory = std::shared_ptr<Bytes>;

constexpr size_t kRoom = size_t{1} << 40, kPage = 4096;  // of addresses; none is used twice

thread_local c10::DeviceIndex device_now = 0;
thread_local std::array<c10::StreamId, 8> streams_now{};

/// Addresses without memory.
char* next_address(size_t bytes) {
  static auto* const begin =
      static_cast<char*>(mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  static std::atomic<size_t> used{0};
  TORCH_CHECK(begin != MAP_FAILED, "test device: no addresses");
  return begin + used.fetch_add((bytes + kPage - 1) / kPage * kPage);
}

/// Memory that is free, by stream and size.
class FreeMemory {
 public:
  Memory take(c10::Stream stream, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find({stream.device_index(), stream.id(), bytes});
    if (found == all_.end()) return std::make_shared<Bytes>(bytes);
    auto memory = std::move(found->second);
    all_.erase(found);
    return memory;
  }

  void give(c10::Stream stream, Memory memory) {
    const std::lock_guard lock(mutex_);
    const auto bytes = memory->size();
    all_.emplace(std::tuple(stream.device_index(), stream.id(), bytes), std::move(memory));
  }

 private:
  std::mutex mutex_;
  std::multimap<std::tuple<c10::DeviceIndex, c10::StreamId, size_t>, Memory> all_;
};

FreeMemory& free_memory() {
  static auto* memory = new FreeMemory;
  return *memory;
}

/// The blocks by their addresses.
class Blocks {
 public:
  void add(Block* block) {
    const std::lock_guard lock(mutex_);
    all_[static_cast<const char*>(block->address)] = block;
  }
  void remove(const Block* block) {
    const std::lock_guard lock(mutex_);
    all_.erase(static_cast<const char*>(block->address));
  }
  Place find(const void* address, Side side) {
    const std::lock_guard lock(mutex_);
    auto found = all_.upper_bound(static_cast<const char*>(address));
    TORCH_CHECK(found != all_.begin(), "test device: a kernel has an address that is not the device's");
    auto& block = *std::prev(found)->second;
    auto& bytes = side == Side::memory ? *block.memory : block.expected;
    const auto offset =
        static_cast<size_t>(static_cast<const char*>(address) - static_cast<const char*>(block.address));
    TORCH_CHECK(offset < bytes.size(), "test device: a kernel has an address that is not the device's");
    return {bytes.data() + offset, side == Side::memory ? block.memory : nullptr};
  }

 private:
  std::mutex mutex_;
  std::map<const char*, Block*> all_;
};

Blocks& blocks() {
  static auto* all = new Blocks;
  return *all;
}

class BlindAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto home = current_stream(device_now);
    auto* const address = bytes == 0 ? nullptr : next_address(bytes);
    if (bytes > 0) memory::note_allocation(address, bytes, /*may_refuse=*/true);
    auto memory = free_memory().take(home, bytes);
    if (bytes > 0)
      DelayedStreams::get().push(
          home, [memory] { std::memset(memory->data(), 0xff, memory->size()); }, /*fills=*/true);
    auto* block = new Block{address, std::move(memory), Bytes(bytes), home};
    if (bytes > 0) blocks().add(block);
    return {address, block, &release, home.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "test device: raw copy"); }

 private:
  static void release(void* pointer) {
    const std::unique_ptr<Block> block(static_cast<Block*>(pointer));
    if (block->address != nullptr) {
      blocks().remove(block.get());
      memory::note_release(block->address);
    }
    if (!block->is_used_elsewhere) free_memory().give(block->home, std::move(block->memory));
  }
};

at::Tensor dense_on_host(const at::Tensor& x, Side side) {
  auto& block = block_of(x.storage().data_ptr());
  auto* bytes = side == Side::memory ? block.memory->data() : block.expected.data();
  auto* first = bytes + x.storage_offset() * static_cast<int64_t>(x.itemsize());
  const auto keeper = side == Side::memory ? block.memory : nullptr;
  return at::from_blob(
      first, x.sizes(), x.strides(), [keeper](void*) {}, at::TensorOptions(x.scalar_type()));
}

}  // namespace

c10::Allocator* blind_allocator() {
  static BlindAllocator allocator;
  return &allocator;
}

Block& block_of(const c10::DataPtr& data) { return *static_cast<Block*>(data.get_context()); }

at::Tensor on_host(const at::Tensor& x, Side side) {
  if (!x.defined() || x.is_cpu()) return x;
  if (!x.is_sparse()) return dense_on_host(x, side);
  return at::_sparse_coo_tensor_unsafe(dense_on_host(x._indices(), side), dense_on_host(x._values(), side), x.sizes())
      ._coalesced_(x.is_coalesced());
}

Place place_of(const void* address, Side side) { return blocks().find(address, side); }

void* handle_of(c10::Stream stream) {
  return reinterpret_cast<void*>((static_cast<uintptr_t>(stream.device_index()) + 1) << 32 |
                                 static_cast<uintptr_t>(stream.id()));
}

c10::Stream stream_of_handle(void* handle) {
  const auto bits = reinterpret_cast<uintptr_t>(handle);
  const c10::Device device(at::kPrivateUse1, static_cast<c10::DeviceIndex>((bits >> 32) - 1));
  return c10::Stream(c10::Stream::UNSAFE, device, static_cast<c10::StreamId>(bits & 0xffffffff));
}

c10::DeviceIndex current_device() { return device_now; }
void set_current_device(c10::DeviceIndex device) { device_now = device; }

c10::Stream current_stream(c10::DeviceIndex device) {
  if (device < 0) device = device_now;
  return c10::Stream(c10::Stream::UNSAFE, {at::kPrivateUse1, device}, streams_now[device]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const auto before = current_stream(stream.device_index());
  streams_now[stream.device_index()] = stream.id();
  return before;
}

}  // namespace tandem::test
