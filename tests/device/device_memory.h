#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace tandem::test {

/// Bytes that begin where the CPU's tensors do, so that its operators take the same way.
class Bytes {
 public:
  explicit Bytes(size_t size) : size_(size), data_(new (kAlignment) std::byte[size]) { std::memset(data_, 0xff, size); }
  ~Bytes() { ::operator delete[](data_, kAlignment); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};

  size_t size_;
  std::byte* data_;
};

/// The bytes behind a tensor of the test device. A stream's memory is used again as soon as it is free, as a GPU's is:
/// by work that the same stream does later.
struct Block {
  const void* address;
  std::shared_ptr<Bytes> memory;   // what the work that was done has left
  Bytes expected;                  // as if all work were done when it is given
  c10::Stream home;                // the stream that it was taken for
  bool is_used_elsewhere = false;  // by a stream that was told of: the memory is not used again
};

enum class Side { memory, expected };

/// Whose pointers lead to no memory. New memory has all bits set.
c10::Allocator* blind_allocator();

Block& block_of(const c10::DataPtr& data);

/// A view of a device tensor's numbers, for the CPU; a CPU tensor as it is. Sparse tensors have dense parts.
at::Tensor on_host(const at::Tensor& x, Side side);

/// Where the host finds what an address of the device stands for.
struct Place {
  void* memory;
  std::shared_ptr<void> keeper;  // of the memory
};
Place place_of(const void* address, Side side);

/// A stream as a pointer, and back.
void* handle_of(c10::Stream stream);
c10::Stream stream_of_handle(void* handle);

/// The calling thread's stream of a device.
c10::Stream current_stream(c10::DeviceIndex device);
/// Returns the one before.
c10::Stream exchange_stream(c10::Stream stream);
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);

}  // namespace tandem::test
