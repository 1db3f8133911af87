#include "tandem/storage/record_io.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

using test::bytes_of;
using test::TemporaryFolder;
using test::text_of;

const std::string kMagic("\x0A\x23\xD7\xCE");
const std::string kRemedy = ": the file or its index is damaged or of another format, use another copy";

std::string number(uint32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

std::string part(uint32_t kind, const std::string& payload) {
  std::string bytes = kMagic + number(kind << 29 | static_cast<uint32_t>(payload.size())) + payload;
  bytes.resize((bytes.size() + 3) / 4 * 4);
  return bytes;
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string written(const std::string& payload) {
  std::vector<std::byte> out;
  append_record(bytes_of(payload), out);
  return text(out);
}

std::string read(const std::string& file, uint64_t offset = 0) {
  std::vector<std::byte> joined;
  return text(read_record(bytes_of(file), offset, joined, "x.rec").payload);
}

std::string told(const std::string& file, uint64_t offset = 0) {
  return text_of<DataError>([&] { read(file, offset); });
}

TEST(RecordIo, BytesAreThoseOfTheFormat) {
  EXPECT_EQ(written("abcde"), std::string("\x0A\x23\xD7\xCE\x05\0\0\0abcde\0\0\0", 16));
  EXPECT_EQ(written(""), std::string("\x0A\x23\xD7\xCE\0\0\0\0", 8));
  EXPECT_EQ(written("abcd" + kMagic + "efgh" + kMagic + "i"), part(1, "abcd") + part(2, "efgh") + part(3, "i"));
  EXPECT_EQ(written(kMagic + kMagic), part(1, "") + part(2, "") + part(3, ""));
  EXPECT_EQ(written("ab" + kMagic + "cd"), part(0, "ab" + kMagic + "cd"));  // not at a multiple of 4
}

TEST(RecordIo, EveryPlaceOfTheMagicComesBack) {
  for (unsigned mask = 0; mask < 32; ++mask) {
    for (size_t tail = 0; tail < 4; ++tail) {
      std::string payload;
      for (unsigned word = 0; word < 5; ++word) payload += mask & 1U << word ? kMagic : "word";
      payload += kMagic.substr(0, tail);
      const auto file = written(payload);
      std::vector<std::byte> joined;
      const auto record = read_record(bytes_of(file), 0, joined, "x.rec");
      EXPECT_EQ(text(record.payload), payload) << mask << " " << tail;
      EXPECT_EQ(record.end, file.size());
      const bool in_file = record.payload.data() == bytes_of(file).data() + 8;
      EXPECT_EQ(in_file, mask == 0);  // a whole record is not copied
    }
  }
}

TEST(RecordIo, EachCutIsSeen) {
  const auto file = written("abcd" + kMagic + "efgh" + kMagic + "i");
  EXPECT_EQ(read(file), "abcd" + kMagic + "efgh" + kMagic + "i");
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(told(file.substr(0, length)), "nothing thrown") << length;
  }
}

TEST(RecordIo, EachFaultNamesItsPlace) {
  const auto file = part(0, "abcd") + part(0, "efgh");
  EXPECT_EQ(told(file, 8), "'x.rec': record[byte 8] begins with 0x64636261, wanted the magic 0xCED7230A" + kRemedy);
  EXPECT_EQ(told(file, 24),
            "'x.rec': record[byte 24] has 0 bytes up to the file's end, wanted a header of 8" + kRemedy);
  EXPECT_EQ(
      told(file, ~uint64_t{0} - 3),
      "'x.rec': record[byte 18446744073709551612] has 0 bytes up to the file's end, wanted a header of 8" + kRemedy);
  EXPECT_EQ(told(part(4, "abcd")),
            "'x.rec': record[byte 0] part is 4, wanted 0 whole, 1 first, 2 middle or 3 last" + kRemedy);
  EXPECT_EQ(told(kMagic + number(0x1FFFFFFF) + "abcd"),
            "'x.rec': record[byte 0] length is 536870911, wanted at most 4, padding included, up to the file's end" +
                kRemedy);
  EXPECT_EQ(told(kMagic + number(3) + "abc"),
            "'x.rec': record[byte 0] length is 3, wanted at most 3, padding included, up to the file's end" + kRemedy);
}

TEST(RecordIo, PartsOutOfOrderAreTold) {
  EXPECT_EQ(told(part(2, "abcd")), "'x.rec': record[byte 0] is a later part of a record, wanted its first" + kRemedy);
  EXPECT_EQ(told(part(3, "abcd")), "'x.rec': record[byte 0] is a later part of a record, wanted its first" + kRemedy);
  for (const uint32_t next : {0U, 1U}) {
    EXPECT_EQ(told(part(1, "abcd") + part(next, "e")),
              "'x.rec': record[byte 0] has no last part, wanted one before the next record begins" + kRemedy);
  }
  EXPECT_EQ(told(part(1, "abc") + part(3, "e")),
            "'x.rec': record[byte 0] is cut at 3, wanted a multiple of 4" + kRemedy);
}

TEST(RecordIo, ALongPayloadIsRefused) {
  std::vector<std::byte> out;
  // Its bytes are never looked at.
  const std::span<const std::byte> payload(reinterpret_cast<const std::byte*>(&out), kMaxRecordBytes + 1);
  EXPECT_EQ(text_of<DataError>([&] { append_record(payload, out); }),
            "record is 536870912 bytes, wanted at most 536870911");
  EXPECT_TRUE(out.empty());
}

TEST(RecordIo, TheWriterMakesRecordsAndTheirIndex) {
  const TemporaryFolder folder;
  RecordWriter writer(folder / "a.rec", folder / "a.idx");
  const std::vector<std::string> payloads = {"first", "", kMagic + "x", "last"};
  std::vector<RecordPlace> places;
  for (uint64_t i = 0; i < payloads.size(); ++i) {
    places.push_back({10 + i, writer.write(10 + i, bytes_of(payloads[i]))});
  }
  writer.close();
  const auto file = test::slurp(folder / "a.rec"), index = test::slurp(folder / "a.idx");
  EXPECT_EQ(index, "10\t0\n11\t16\n12\t24\n13\t44\n");
  EXPECT_EQ(parse_record_index(bytes_of(index), "a.idx"), places);
  for (size_t i = 0; i < payloads.size(); ++i) EXPECT_EQ(read(file, places[i].offset), payloads[i]);
  EXPECT_EQ(index_records(bytes_of(file), "a.rec"), (std::vector<RecordPlace>{{0, 0}, {1, 16}, {2, 24}, {3, 44}}));
  EXPECT_THROW(index_records(bytes_of(file).first(file.size() - 1), "a.rec"), DataError);
}

TEST(RecordIo, TheWriterTellsWhereItCannotWrite) {
  const TemporaryFolder folder;
  EXPECT_EQ(text_of<IoError>([&] { RecordWriter(folder / "no/a.rec", folder / "a.idx"); }),
            "cannot create '" + (folder / "no/a.rec").string() + "': No such file or directory");
  EXPECT_EQ(text_of<IoError>([&] { RecordWriter(folder / "a.rec", folder / "no/a.idx"); }),
            "cannot create '" + (folder / "no/a.idx").string() + "': No such file or directory");
  RecordWriter full("/dev/full", folder / "a.idx");
  const std::string long_payload(1 << 20, 'x');
  EXPECT_EQ(text_of<IoError>([&] { full.write(0, bytes_of(long_payload)); }),
            "cannot write '/dev/full': No space left on device: free some space there or choose another folder");
}

TEST(RecordIo, TheWriterLeavesNothingUnfinished) {
  const TemporaryFolder folder;
  { RecordWriter(folder / "a.rec", folder / "a.idx").write(0, bytes_of("x")); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RecordIndex, IsSortedByKeyAndMayComeFromWindows) {
  EXPECT_EQ(parse_record_index(bytes_of("3\t8\r\n1\t0\r\n"), "x.idx"), (std::vector<RecordPlace>{{1, 0}, {3, 8}}));
  EXPECT_EQ(parse_record_index(bytes_of("1\t18446744073709551615"), "x.idx"),
            (std::vector<RecordPlace>{{1, ~uint64_t{0}}}));
  EXPECT_TRUE(parse_record_index({}, "x.idx").empty());
}

TEST(RecordIndex, EachFaultNamesItsLine) {
  const std::string remedy = ": remove the file, and the records are indexed anew";
  for (const std::string line :
       {"", "1", "1 5", "1\t", "\t5", "-1\t5", "1\t-5", "1\t5x", "1\t18446744073709551616", "1.0\t5", "1\t5\t6"}) {
    EXPECT_EQ(
        text_of<DataError>([&] { parse_record_index(bytes_of("0\t0\n" + line + "\n"), "x.idx"); }),
        "'x.idx': line[2] is no index entry, wanted a key, a tab and an offset, whole numbers below 2^64" + remedy)
        << line;
  }
  EXPECT_EQ(text_of<DataError>([&] { parse_record_index(bytes_of("7\t0\n7\t8\n"), "x.idx"); }),
            "'x.idx': key 7 is given twice, wanted it once" + remedy);
}

}  // namespace
}  // namespace tandem::storage
