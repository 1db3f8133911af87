#include "tandem/data/record/pickled_pairs.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/python.h"
#include "tests/support/text_of.h"

namespace tandem::data {
namespace {

using test::bytes_of;
using test::TemporaryFolder;
using test::text_of;
using Texts = std::vector<std::string>;
using Flags = std::vector<bool>;

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Texts images_of(const PickledPairs& pairs) {
  Texts images;
  std::vector<std::byte> decoded;
  for (const auto& image : pairs.images) images.push_back(text(plain_bytes(image, decoded)));
  return images;
}

std::string told(const std::string& file) {
  return text_of<DataError>([&] { parse_pickled_pairs(bytes_of(file), "x.bin"); });
}

const std::string kDump = "write it with pickle.dump((list of encoded images, list of bool), file)";

/// A fault of the opcode at byte `at`, without the name of the file and the remedy.
std::string fault_at(size_t at, const std::string& fault) {
  return "'x.bin': pickle[byte " + std::to_string(at) + "] " + fault + ": use another copy, or " + kDump;
}

std::string operator""_s(const char* text, size_t length) { return {text, length}; }

// Images as str, as Python 2 writes them at protocol 2, by both opcodes that it has for them.
const auto kPython2 =
    "\x80\x02(]q\x01(U\x03"
    "a\0bq\x02T\x02\0\0\0cdq\x03"
    "e]q\x04\x88"
    "atq\x05."_s;

TEST(PickledPairs, Python2StringsAreBytes) {
  const auto pairs = parse_pickled_pairs(bytes_of(kPython2), "x.bin");
  EXPECT_EQ(images_of(pairs), (Texts{"a\0b"_s, "cd"}));
  EXPECT_EQ(pairs.same, (Flags{true}));
  EXPECT_EQ(pairs.images[0].stored.data(), bytes_of(kPython2).data() + 9);  // where it lies in the file
}

TEST(PickledPairs, EachCutIsSeen) {
  for (size_t length = 0; length < kPython2.size(); ++length) {
    EXPECT_NE(told(kPython2.substr(0, length)), "nothing thrown") << length;
  }
}

TEST(PickledPairs, WhatPythonWritesIsReadAtEachProtocol) {
  const TemporaryFolder folder;
  const auto result = test::run_python(folder, R"(
import pickle
every_byte = bytes(range(256))
images = [every_byte, b'', b'x' * 70000, every_byte * 300, b'abc', b'abc']
images += [images[0], images[4]]
for protocol in range(2, 6):
    for kind, flags in (('list', [True, False, True, False]), ('tuple', (True, False, True, False))):
        with open(f'{kind}{protocol}.bin', 'wb') as file:
            pickle.dump((images, flags) if kind == 'list' else [tuple(images), flags], file, protocol)
)");
  ASSERT_EQ(result.status, 0) << result.output;
  std::string every_byte, many;
  for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte);
  for (int i = 0; i < 300; ++i) many += every_byte;
  const Texts images = {every_byte, "", std::string(70000, 'x'), many, "abc", "abc", every_byte, "abc"};
  for (const std::string protocol : {"2", "3", "4", "5"}) {
    for (const std::string kind : {"list", "tuple"}) {
      const auto file = test::slurp(folder / (kind + protocol + ".bin"));
      if (protocol == "2") {  // an empty bytes is a call of bytes() there, which no image needs
        EXPECT_TRUE(told(file).find("names __builtin__.bytes, wanted _codecs.encode") != std::string::npos);
        continue;
      }
      const auto pairs = parse_pickled_pairs(bytes_of(file), "x.bin");
      EXPECT_EQ(images_of(pairs), images) << kind << protocol;
      EXPECT_EQ(pairs.same, (Flags{true, false, true, false}));
    }
  }
}

TEST(PickledPairs, Protocol2OfPython3IsDecoded) {
  const TemporaryFolder folder;
  const auto result = test::run_python(folder, R"(
import pickle
with open('x.bin', 'wb') as file:
    pickle.dump(([bytes(range(256)), b'\xff\xd8\xff', b'abc', b'abc'], [False, True]), file, 2)
)");
  ASSERT_EQ(result.status, 0) << result.output;
  const auto file = test::slurp(folder / "x.bin");
  const auto pairs = parse_pickled_pairs(bytes_of(file), "x.bin");
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte);
  EXPECT_EQ(images_of(pairs), (Texts{every_byte, "\xFF\xD8\xFF", "abc", "abc"}));
  EXPECT_TRUE(pairs.images[1].is_encoded);
  EXPECT_EQ(pairs.same, (Flags{false, true}));
}

TEST(PickledPairs, NoOtherFunctionIsKnown) {
  EXPECT_EQ(told("\x80\x02"
                 "cos\nsystem\n(U\x02lstR."),
            fault_at(2, "names os.system, wanted _codecs.encode and no other function"));
  EXPECT_EQ(told("\x80\x04\x8c\x02os\x8c\x06system\x93."),
            fault_at(14, "is opcode 0x93, wanted one of those that lists of bytes and bool need"));
  EXPECT_EQ(told("\x80\x02"
                 "c" +
                 std::string(101, 'x')),
            fault_at(2, "names no function, wanted _codecs encode"));
  EXPECT_EQ(told("\x80\x02"
                 "c\xFF\n"),
            fault_at(2, "names no function, wanted _codecs encode"));
  EXPECT_EQ(told("\x80\x02U\x01x)R."), fault_at(6, "calls what is no function"));
  const std::string arguments =
      "calls _codecs.encode, wanted a str of code points below 256 and 'latin1' as its arguments";
  const auto encode =
      "\x80\x02"
      "c_codecs\nencode\n"_s;
  EXPECT_EQ(told(encode + ")R."), fault_at(encode.size() + 1, arguments));
  EXPECT_EQ(told(encode + "X\x01\0\0\0xX\x04\0\0\0utf8\x86R."_s), fault_at(encode.size() + 16, arguments));
  EXPECT_EQ(told(encode + "X\x02\0\0\0\xC4\x80X\x06\0\0\0latin1\x86R."_s), fault_at(encode.size() + 19, arguments));
}

TEST(PickledPairs, HostileLengthsAreTold) {
  EXPECT_EQ(told("\x80\x03"
                 "C\x02x"),
            fault_at(2, "needs 2 bytes more, but the file has 1 left"));
  EXPECT_EQ(told("\x80\x03"
                 "C\xFFx"_s),
            fault_at(2, "needs 255 bytes more, but the file has 1 left"));
  EXPECT_EQ(told("\x80\x03"
                 "B\xFF\xFF\xFF\xFFx"_s),
            fault_at(2, "needs 4294967295 bytes more, but the file has 1 left"));
  EXPECT_EQ(told("\x80\x04\x8E\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFx"_s),
            fault_at(2, "needs 18446744073709551615 bytes more, but the file has 1 left"));
  EXPECT_EQ(told("\x80\x04\x95\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF]"_s),
            fault_at(2, "begins a frame of 18446744073709551615 bytes, but the file has 1 left"));
  EXPECT_EQ(told("\x80\x02T\xFF\xFF\xFF\xFF"_s), fault_at(2, "has length -1, wanted 0 or more"));
  EXPECT_EQ(told("\x80\x02]r\xFF\xFF\xFF\xFFj\xFE\xFF\xFF\xFF."_s),
            fault_at(8, "recalls value 4294967294, which was not remembered"));
}

TEST(PickledPairs, AWrongStackIsTold) {
  EXPECT_EQ(told(""), fault_at(0, "needs 1 bytes more, but the file has 0 left"));
  EXPECT_EQ(told("PK"), fault_at(0, "begins with another byte than 0x80, wanted a pickle of protocol 2 to 5"));
  EXPECT_EQ(told("\x80\x01."), fault_at(0, "is of protocol 1, wanted 2 to 5"));
  EXPECT_EQ(told("\x80\x02."), fault_at(2, "ends with 0 values, wanted one"));
  EXPECT_EQ(told("\x80\x02\x88\x88."), fault_at(4, "ends with 2 values, wanted one"));
  EXPECT_EQ(told("\x80\x02\x88\x86."), fault_at(3, "takes a value from an empty stack"));
  EXPECT_EQ(told("\x80\x02\x88(\x86."), fault_at(4, "takes a value from an empty stack"));
  EXPECT_EQ(told("\x80\x02t."), fault_at(2, "has no mark before it"));
  EXPECT_EQ(told("\x80\x02\x88\x88"
                 "a."),
            fault_at(4, "appends to what is no list"));
  EXPECT_EQ(told("\x80\x02(\x88"
                 "e."),
            fault_at(4, "appends to what is no list"));
  EXPECT_EQ(told("\x80\x02q"_s + "\0."_s), fault_at(2, "remembers a value of an empty stack"));
}

TEST(PickledPairs, ValuesBelowAMarkAreOutOfReach) {
  EXPECT_EQ(told("\x80\x02\x88\x88(\x86."), fault_at(5, "takes a value from an empty stack"));
  EXPECT_EQ(told("\x80\x02]((e."), fault_at(5, "appends to what is no list"));
  EXPECT_EQ(told("\x80\x02](q\0."_s), fault_at(4, "remembers a value of an empty stack"));
}

TEST(PickledPairs, AnotherShapeIsTold) {
  const auto shape = [](const std::string& body) { return told("\x80\x03" + body + "."); };
  const auto fault = [](const std::string& text) { return "'x.bin': " + text + ": " + kDump; };
  EXPECT_EQ(shape("\x88"), fault("the pickle is a bool, wanted a list"));
  EXPECT_EQ(shape("]"), fault("the pickle is of 0 values, wanted two lists"));
  EXPECT_EQ(shape("C\x01x]\x86"), fault("images is bytes, wanted a list"));
  EXPECT_EQ(shape("]\x88\x86"), fault("same is a bool, wanted a list"));
  const std::string sizes = ", wanted two images a pair, and at least one pair";
  EXPECT_EQ(shape("]]\x86"), fault("images and same are lists of 0 and 0" + sizes));
  EXPECT_EQ(shape("](C\x01xC\x01yC\x01ze](\x88"
                  "e\x86"),
            fault("images and same are lists of 3 and 1" + sizes));
  EXPECT_EQ(shape("](C\x01x\x89"
                  "e](\x88"
                  "e\x86"),
            fault("images[1] is a bool, wanted bytes"));
  EXPECT_EQ(shape("](C\x01xC\x01ye](C\x01ze\x86"), fault("same[0] is bytes, wanted a bool"));
  EXPECT_EQ(shape("](]]e](]e\x86"), fault("images[0] is a list, wanted bytes"));
}

TEST(PickledPairs, AListMayStandInItself) {
  EXPECT_EQ(told("\x80\x02]q\x01h\x01"
                 "a."),
            "'x.bin': the pickle is of 1 values, wanted two lists: " + kDump);
}

}  // namespace
}  // namespace tandem::data
