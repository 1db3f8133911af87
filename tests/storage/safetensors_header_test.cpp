#include "tandem/storage/detail/safetensors_header.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tests/storage/header_mutation.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

using test::text_of;

detail::SafetensorsHeader parse(const std::string& file) {
  return detail::parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "x.safetensors");
}

std::string fault_of(const std::string& json, size_t data_bytes = 8) {
  const auto text = text_of<DataError>([&] { parse(safetensors_bytes(json, data_bytes)); });
  const std::string tail = ": the file is damaged or no safetensors file, use another copy";
  return text.ends_with(tail) ? text.substr(0, text.size() - tail.size()) : text;
}

/// One float32 tensor of 2 elements with one field replaced.
std::string tensor_with(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto header = parse(safetensors_bytes(
      R"({"b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},"__metadata__":{"format":"pt"},)"
      R"("a":{"shape":[2,1],"data_offsets":[0,8],"dtype":"F32"},"none":{"dtype":"I64","shape":[0],"data_offsets":[8,8]}})",
      14));
  ASSERT_EQ(header.entries.size(), 3U);
  EXPECT_EQ(header.entries[0], (detail::SafetensorsEntry{"a", "F32", {2, 1}, 0, 8}));
  EXPECT_EQ(header.entries[1], (detail::SafetensorsEntry{"none", "I64", {0}, 8, 8}));
  EXPECT_EQ(header.entries[2], (detail::SafetensorsEntry{"b", "BF16", {3}, 8, 14}));
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(SafetensorsHeader, FormatsWhatThePythonPackageFormats) {
  detail::SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  header.entries = {{"a", "F32", {2}, 0, 8}, {"b", "U8", {}, 8, 9}};
  const std::string json = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  const auto text = detail::format_safetensors_header(header);
  EXPECT_EQ(text.size() % 8, 0U);
  EXPECT_EQ(text.substr(8, json.size()), json);
  EXPECT_EQ(text.find_first_not_of(' ', 8 + json.size()), std::string::npos);
}

TEST(SafetensorsHeader, NamesFileFieldFoundAndWanted) {
  const std::string file = "'x.safetensors': ";
  const std::vector<std::pair<std::string, std::string>> faults = {
      {tensor_with(R"("f32")", "[2]", "[0,8]"),
       "tensor 'a' dtype is 'f32', wanted one of BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ "
       "F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64"},
      {tensor_with(R"("F32")", "[3]", "[0,8]"), "tensor 'a' data_offsets is [0,8], wanted [0,12] for F32 [3]"},
      {tensor_with(R"("F32")", "[2]", "[4,12]"), "tensor 'a' data_offsets is [4,12], wanted [0,8] for F32 [2]"},
      {tensor_with(R"("F32")", "[1]", "[0,4]"), "the size of the data is 8, wanted 4, where the last tensor ends"},
      {tensor_with(R"("F32")", "[4]", "[0,16]"),
       "tensor 'a' data_offsets is [0,16], wanted an end up to 8, where the file ends"},
      {tensor_with(R"("F32")", "[-1]", "[0,8]"),
       "tensor 'a' shape is -1, wanted a list of at most 16 whole numbers from 0 to 2^63 - 1"},
      {tensor_with(R"("F32")", "[1e2]", "[0,8]"),
       "tensor 'a' shape is 1e2, wanted a list of at most 16 whole numbers from 0 to 2^63 - 1"},
      {tensor_with(R"("F32")", "[99999999999999999999]", "[0,8]"),
       "tensor 'a' shape is 99999999999999999999, wanted a list of at most 16 whole numbers from 0 to 2^63 - 1"},
      {tensor_with(R"("F32")", "[4294967296,4294967296]", "[0,8]"),
       "tensor 'a' shape is F32 [4294967296,4294967296], wanted whole bytes that fit 60 bits"},
      {tensor_with(R"("F32")", "[4294967296,4294967296,0]", "[0,0]"),
       "tensor 'a' shape is F32 [4294967296,4294967296,0], wanted whole bytes that fit 60 bits"},
      {tensor_with(R"("F4")", "[3]", "[0,2]"), "tensor 'a' shape is F4 [3], wanted whole bytes that fit 60 bits"},
      {tensor_with(R"("F32")", "2", "[0,8]"),
       "tensor 'a' shape is 2, wanted a list of at most 16 whole numbers from 0 to 2^63 - 1"},
      {tensor_with(R"("F32")", "[2]", "[0]"),
       "tensor 'a' data_offsets is 1 numbers, wanted a list of two whole numbers from 0 to 2^64 - 1"},
      {tensor_with(R"("F32")", "[2]", "[0,8,8]"),
       "tensor 'a' data_offsets is 8, wanted a list of two whole numbers from 0 to 2^64 - 1"},
      {R"({"a":{"dtype":"F32","shape":[2]}})",
       "tensor 'a' data_offsets is missing, wanted a list of two whole numbers from 0 to 2^64 - 1"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "tensor 'a' dtype is given twice, wanted it once"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}})",
       "tensor 'a' field is 'extra', wanted dtype, shape or data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})",
       "the name 'a' is given twice, wanted it once"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "__metadata__ 'k' is given twice, wanted it once"},
      {R"({"__metadata__":{"k":1}})", "__metadata__ 'k' is 1, wanted a text"},
      {R"({"__metadata__":null})", "'__metadata__' is null, wanted an object of texts"},
      {R"({"a\n\u0000b":{}})", R"(a name is 'a\x0a\x00b', wanted no NUL in it)"},
      {R"({"a":[1]})", "'a' is a list, wanted an object, one of at most 1000000"},
      {R"([1])", "the header's first byte is '[', wanted '{'"},
      {" {}", "the header's first byte is ' ', wanted '{'"},
      {"{}{", "the header's byte 11 is not JSON, wanted a JSON object"},
      {std::string("{}\0{", 4), "the header's byte 10 is NUL, wanted JSON"},
      {R"({"\ud800":{}})", "the header's byte 17 is not JSON, wanted a JSON object"},
      {"{\"\xff\":{}}", "the header's byte 11 is not JSON, wanted a JSON object"},
      {R"({"a":)" + std::string(100'000, '['), "'a' is a list, wanted an object, one of at most 1000000"},
  };
  for (const auto& [json, fault] : faults) EXPECT_EQ(fault_of(json), file + fault) << json.substr(0, 200);
}

TEST(SafetensorsHeader, LimitsDimsAndNames) {
  const auto dims = [](int count) {
    std::string shape = "[2";
    for (int i = 1; i < count; ++i) shape += ",1";
    return tensor_with(R"("F32")", shape + "]", "[0,8]");
  };
  EXPECT_EQ(fault_of(dims(16)), "nothing thrown");
  EXPECT_EQ(fault_of(dims(17)),
            "'x.safetensors': tensor 'a' shape is 1, wanted a list of at most 16 whole numbers from 0 to 2^63 - 1");
  const auto named = [](size_t bytes) {
    return "{\"" + std::string(bytes, 'n') + R"(":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})";
  };
  EXPECT_EQ(fault_of(named(4096)), "nothing thrown");
  EXPECT_NE(fault_of(named(4097)).find("...' is too long, wanted at most 4096 bytes"), std::string::npos);
}

TEST(SafetensorsHeader, ChecksTheLengthBeforeAnyAllocation) {
  const auto with_length = [](uint64_t length, size_t file_bytes) {
    std::string file(file_bytes, ' ');
    std::memcpy(file.data(), &length, std::min<size_t>(8, file_bytes));
    return text_of<DataError>([&] { parse(file); });
  };
  for (const uint64_t length : {0, 1, 93, 100'000'000}) {
    EXPECT_EQ(with_length(length, 100),
              "'x.safetensors': the header's length is " + std::to_string(length) +
                  ", wanted 2 to 92: the file is damaged or no safetensors file, use another copy");
  }
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    EXPECT_EQ(with_length(length, 100),
              "'x.safetensors' is no safetensors file: it does not begin with the length of its header");
  }
  EXPECT_EQ(with_length(2, 7),
            "'x.safetensors': the file's size is 7, wanted at least 8 bytes: the file is damaged or "
            "no safetensors file, use another copy");
}

TEST(SafetensorsHeader, MutatedHeadersAreRejectedOrComeBackEqual) {
  int accepted = 0, rejected = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    const auto file = mutated_file(seed);
    try {
      const auto header = parse(file);
      ++accepted;
      auto again = parse(detail::format_safetensors_header(header) + file.substr(header.data_begin));
      again.data_begin = header.data_begin;  // the blanks may have differed
      EXPECT_EQ(again, header) << "seed " << seed;
    } catch (const DataError& error) {
      ++rejected;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      EXPECT_LT(std::strlen(error.what()), 600U) << error.what();
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(rejected, 10'000);
}

}  // namespace
}  // namespace tandem::storage
