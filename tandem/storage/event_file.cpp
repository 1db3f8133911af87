#include "tandem/storage/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>

#include "tandem/storage/file_io.h"

namespace tandem::storage {
namespace {

/// The field numbers of tensorflow's event.proto and summary.proto that a scalar needs.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField { kValue = 1, kTag = 1, kSimpleValue = 2 };
enum SessionField { kStatus = 1 };
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr uint64_t kSessionStart = 1;

constexpr std::array<uint32_t, 256> make_crc_table() {
  constexpr uint32_t kCastagnoliReversed = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? kCastagnoliReversed : 0);
    table[byte] = value;
  }
  return table;
}

constexpr auto kCrcTable = make_crc_table();

template <class Number>
std::string little_endian(Number number) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string key(int field, WireType type) { return varint(static_cast<uint64_t>(field) << 3 | type); }

std::string bytes_field(int field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string event_head(double wall_time, int64_t step) {
  auto head = key(kWallTime, kFixed64) + little_endian(wall_time);
  if (step != 0) head += key(kStep, kVarint) + varint(static_cast<uint64_t>(step));  // protobuf omits zeros
  return head;
}

uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U; }

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::filesystem::path new_file_in(const std::filesystem::path& folder) {
  static std::atomic<int> number{0};
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  make_own_folder(folder);
  return folder / ("events.out.tfevents." + std::to_string(static_cast<int64_t>(now())) + "." + host + "." +
                   std::to_string(getpid()) + "." + std::to_string(number++));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~0U;
  for (const auto byte : bytes) value = kCrcTable[(value ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (value >> 8);
  return ~value;
}

std::string event_record(std::string_view event) {
  const auto length = little_endian(static_cast<uint64_t>(event.size()));
  return length + little_endian(masked_crc(length)) + std::string(event) + little_endian(masked_crc(event));
}

std::string version_event(double wall_time) {
  return event_head(wall_time, 0) + bytes_field(kFileVersion, "brain.Event:2");
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  const auto scalar = bytes_field(kTag, tag) + key(kSimpleValue, kFixed32) + little_endian(value);
  return event_head(wall_time, step) + bytes_field(kSummary, bytes_field(kValue, scalar));
}

std::string session_start_event(double wall_time, int64_t step) {
  return event_head(wall_time, step) + bytes_field(kSessionLog, key(kStatus, kVarint) + varint(kSessionStart));
}

EventFile::EventFile(const std::filesystem::path& folder)
    : file_(new_file_in(folder), LogFile::Start::anew, "curves have gaps") {
  file_.append(event_record(version_event(now())));
}

void EventFile::scalar(std::string_view tag, int64_t step, double value) {
  file_.append(event_record(scalar_event(now(), step, tag, static_cast<float>(value))));
}

void EventFile::session_start(int64_t step) { file_.append(event_record(session_start_event(now(), step))); }

}  // namespace tandem::storage
