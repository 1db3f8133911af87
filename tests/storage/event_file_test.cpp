#include "tandem/storage/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tandem/base/error.h"
#include "tests/storage/disk_limit.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

using test::slurp;
using test::spill;
using test::TemporaryFolder;
using test::text_of;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version, tag;
  float value = 0;
  bool starts_session = false;
};

/// Reads protocol buffers as far as an event of ours goes; anything else fails the test.
class Decoder {
 public:
  explicit Decoder(std::string bytes) : bytes_(std::move(bytes)) {}

  bool done() const { return at_ == bytes_.size(); }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.at(at_++));
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }

  template <class Number>
  Number fixed() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string bytes() { return take(varint()); }

  std::string take(size_t count) {
    if (count > bytes_.size() - at_) throw std::out_of_range("cut short");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

Event decode(const std::string& bytes) {
  Event event;
  for (Decoder outer(bytes); !outer.done();) {
    switch (outer.varint()) {
      case 1 << 3 | 1:
        event.wall_time = outer.fixed<double>();
        break;
      case 2 << 3 | 0:
        event.step = static_cast<int64_t>(outer.varint());
        break;
      case 3 << 3 | 2:
        event.version = outer.bytes();
        break;
      case 7 << 3 | 2:
        event.starts_session = outer.bytes() == "\x08\x01";
        break;
      case 5 << 3 | 2: {
        Decoder summary(outer.bytes());
        EXPECT_EQ(summary.varint(), 1U << 3 | 2);
        Decoder value(summary.bytes());
        EXPECT_EQ(value.varint(), 1U << 3 | 2);
        event.tag = value.bytes();
        EXPECT_EQ(value.varint(), 2U << 3 | 5);
        event.value = value.fixed<float>();
        EXPECT_TRUE(value.done() && summary.done());
        break;
      }
      default:
        ADD_FAILURE() << "unknown field";
        return event;
    }
  }
  return event;
}

/// All events of a file; each record must be, byte for byte, what event_record makes of its data.
std::vector<Event> read_events(const std::filesystem::path& path) {
  const auto bytes = slurp(path);
  std::vector<Event> events;
  for (Decoder file(bytes); !file.done();) {
    const auto length = file.fixed<uint64_t>();
    const auto length_crc = file.take(4), data = file.take(length), data_crc = file.take(4);
    const auto record = event_record(data);
    EXPECT_EQ(record.substr(8, 4), length_crc);
    EXPECT_EQ(record.substr(record.size() - 4), data_crc);
    events.push_back(decode(data));
  }
  return events;
}

TEST(EventFile, ChecksumIsCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

// Both computed apart from this code, out of the format's definition.
TEST(EventFile, RecordsEqualTheGoldenBytes) {
  std::string version_only = version_event(0).substr(9);  // without the time
  EXPECT_EQ(hex(event_record(version_only)), "0f000000000000006d532b091a0d627261696e2e4576656e743a32fc985129");
  EXPECT_EQ(hex(event_record(scalar_event(1.0, 3, "loss", 0.5F))),
            "1a00000000000000129bd82d09000000000000f03f10032a0d0a0b0a046c6f7373150000003f7fb84377");
}

TEST(EventFile, EveryScalarComesBack) {
  const TemporaryFolder folder;
  EventFile file(folder / "runs/a");
  file.session_start(7);
  for (int i = 0; i < 1000; ++i) file.scalar("train/loss", i * 1000L, i * 0.25);
  const auto events = read_events(file.path());  // while it is open: nothing waits in a buffer
  ASSERT_EQ(events.size(), 1002U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_TRUE(events[1].starts_session);
  EXPECT_EQ(events[1].step, 7);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(events[i + 2].tag, "train/loss");
    EXPECT_EQ(events[i + 2].step, i * 1000L);
    EXPECT_EQ(events[i + 2].value, static_cast<float>(i * 0.25));
    EXPECT_GT(events[i + 2].wall_time, 1.7e9);
  }
}

TEST(EventFile, LongTagsAndNegativeStepsHold) {
  const auto event = decode(scalar_event(2.0, -1, std::string(300, 't'), -0.0F));
  EXPECT_EQ(event.tag, std::string(300, 't'));
  EXPECT_EQ(event.step, -1);
  EXPECT_TRUE(std::signbit(event.value));
}

TEST(EventFile, TwoInOneProcessHaveTheirOwnNames) {
  const TemporaryFolder folder;
  const EventFile a(folder.path()), b(folder.path());
  EXPECT_NE(a.path(), b.path());
  EXPECT_TRUE(a.path().filename().string().starts_with("events.out.tfevents."));
}

TEST(EventFile, AFullDiskCostsWholeRecordsAndOneWarning) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  testing::internal::CaptureStderr();
  {
    const DiskLimit full(1000);  // the captured warning counts too
    for (int i = 0; i < 99; ++i) file.scalar("loss", i, 1.0);
  }
  file.scalar("loss", 99, 1.0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: curves have gaps: cannot write '" + file.path().string() + "': File too large\n");
  const auto events = read_events(file.path());
  EXPECT_GT(events.size(), 10U);
  EXPECT_LT(events.size(), 40U);
  EXPECT_EQ(events.back().step, 99);
}

TEST(EventFile, AFolderThatCannotBeIsNamed) {
  const TemporaryFolder folder;
  spill(folder / "file", "x");
  const auto text = text_of<IoError>([&] { EventFile file(folder / "file"); });
  EXPECT_TRUE(text.starts_with("cannot make folder '" + (folder / "file").string() + "': ") ||
              text.starts_with("cannot write '" + (folder / "file").string() + "/"))
      << text;
}

}  // namespace
}  // namespace tandem::storage
