#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tandem::comm {

/// Memory that several processes of a host map. It has no name in the file system and ends with the last process that
/// maps it, in whatever way that process ends. Pages take memory from their first use on.
class Segment {
 public:
  /// Zeros. `bytes`: a multiple of 8. Throws std::system_error.
  static Segment create(int64_t bytes);

  /// The segment with this key(), of so many bytes, behind another process's descriptor(). Throws std::system_error if
  /// another thing is there, or if that process belongs to another user.
  static Segment attach(pid_t process, int descriptor, int64_t bytes, uint64_t key);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  std::byte* data() const { return data_; }

  /// Drawn when it was created: no two segments have the same.
  uint64_t key() const;

  /// By which other processes attach, until it is closed.
  int descriptor() const { return descriptor_; }
  void close_descriptor();

 private:
  Segment(int descriptor, int64_t bytes);

  int descriptor_ = -1;
  int64_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

/// Tells whether a process has ended, also if its number is another process's by then.
class ProcessWatch {
 public:
  /// Throws std::system_error if the process is not there.
  explicit ProcessWatch(pid_t process);
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&&) = delete;
  ~ProcessWatch();

  bool has_ended() const;

 private:
  int descriptor_;
};

}  // namespace tandem::comm
