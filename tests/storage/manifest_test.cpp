#include "tandem/storage/manifest.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/storage/checksum.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

using test::text_of;

Manifest sample() {
  Manifest manifest;
  manifest.step = 300;
  manifest.world = 2;
  manifest.identity = {{"model", "resnet18"}, {"data", "glyphs"}, {"data.classes", "3755"}};
  manifest.trainer = {{"epoch", int64_t{3}},
                      {"samples_seen", std::numeric_limits<int64_t>::max()},
                      {"best", 0.1},
                      {"worst", -std::numeric_limits<double>::infinity()},
                      {"tiny", 5e-324},
                      {"whole", 2.0},
                      {"balance", int64_t{-7}},
                      {"zero", -0.0},
                      {"note", "\"汉字\"\n"},
                      {"done", false}};
  manifest.files = {{"rank_0000.safetensors", 100, "aa"}, {"rank_0001.safetensors", 90, "bb"}, {kIndexName, 80, "cc"}};
  return manifest;
}

std::string fault_of(const std::string& text) {
  return text_of<DataError>([&] { parse_manifest(text, "manifest.json"); });
}

/// The manifest with one piece of text replaced and its checksum made to fit, so that only the meaning is judged.
std::string forged(const std::string& from, const std::string& to) {
  auto text = format_manifest(sample());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Manifest, EveryValueComesBackBitForBit) {
  const auto found = parse_manifest(format_manifest(sample()), "m");
  EXPECT_EQ(found, sample());
  EXPECT_TRUE(std::signbit(number(found.trainer, "zero")));
  auto with_nan = sample();
  with_nan.trainer = {{"nan", std::nan("")}};
  EXPECT_TRUE(std::isnan(number(parse_manifest(format_manifest(with_nan), "m").trainer, "nan")));
}

Manifest with_card() {
  auto manifest = sample();
  manifest.files.push_back({kCardName, 70, "dd"});
  return manifest;
}

TEST(Manifest, ACardMakesItVersionTwo) {
  EXPECT_EQ(sample().card(), nullptr);
  EXPECT_NE(format_manifest(sample()).find("\"version\": 1"), std::string::npos);
  const auto found = parse_manifest(format_manifest(with_card()), "m");
  EXPECT_EQ(found, with_card());
  EXPECT_NE(format_manifest(found).find("\"version\": 2"), std::string::npos);
  EXPECT_EQ(found.index().name, kIndexName);
  ASSERT_NE(found.card(), nullptr);
  EXPECT_EQ(found.card()->bytes, 70);
}

TEST(Manifest, EveryFlippedBitIsNoticed) {
  const auto sound = format_manifest(with_card());
  for (size_t at = 0; at < sound.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto text = sound;
      text[at] ^= static_cast<char>(1 << bit);
      EXPECT_NE(fault_of(text), "") << "byte " << at << " bit " << bit;
    }
  }
}

TEST(Manifest, EveryCutIsNoticed) {
  const auto sound = format_manifest(sample());
  for (size_t length = 0; length < sound.size(); ++length) EXPECT_NE(fault_of(sound.substr(0, length)), "") << length;
}

TEST(Manifest, NamesFieldFoundAndWanted) {
  const std::string tail = ": the file is damaged, use another copy";
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> faults = {
      {{"\"step\": 300", "\"step\": 301"}, "xxh3 is '"},
      {{"\"step\": 300", "\"step\": -3"}, "step is '-3', wanted a whole number up to 9223372036854775807" + tail},
      {{"\"step\": 300,\n", ""}, "step is missing, wanted a whole number up to 9223372036854775807" + tail},
      {{"\"world\": 2", "\"world\": 3"}, "files is 3 entries, wanted one a rank and the index" + tail},
      {{"\"world\": 2", "\"world\": 2000000"}, "world is 2000000, wanted a whole number up to 1000000" + tail},
      {{"tandem.checkpoint", "other"}, "format is 'other', wanted 'tandem.checkpoint'" + tail},
      {{"\"version\": 1", "\"version\": 3"}, "version is 3, wanted 1 or 2: read it with the release that wrote it"},
      {{"\"resnet18\"", "18"}, "job.model is '18', wanted a text" + tail},
      {{"\"epoch\": 3", "\"epoch\": [3]"}, "trainer.epoch is '[3]', wanted a number, a text, true or false" + tail},
      {{"rank_0001", "../../etc"}, "files[1].name is '../../etc.safetensors', wanted 'rank_0001.safetensors'" + tail},
      {{"\"data\"", "\"model\""}, "the key 'model' is given twice, wanted it once" + tail},
      {{"300", "1e999"}, "a number is out of range, wanted one that fits 64 bits" + tail},
      {{"300", "[[[[[[[[[1]]]]]]]]]"}, "the JSON is nested deeper than 8, wanted at most 8" + tail},
      {{"300", std::string("\0", 1)}, "a byte is NUL, wanted JSON" + tail},
  };
  for (const auto& [change, fault] : faults) {
    const auto text = fault_of(forged(change.first, change.second));
    EXPECT_TRUE(text.starts_with("'manifest.json': " + fault)) << text;
  }
  EXPECT_EQ(fault_of("[]"), "'manifest.json': the JSON is array, wanted an object" + tail);
  EXPECT_EQ(fault_of(std::string(1'000'000, '[')),
            "'manifest.json': the JSON is nested deeper than 8, wanted at most 8" + tail);
  EXPECT_EQ(fault_of("{"), "'manifest.json': byte 2 is not JSON, wanted a JSON object" + tail);
}

TEST(Manifest, ManyKeysCostNoLongTime) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_EQ(fault_of(text + "}"),
            "'manifest.json': an object has over 10000 keys, wanted at most that many: the file is "
            "damaged, use another copy");
}

TEST(Manifest, RefusesTextsThatJsonCannotHold) {
  const auto fault = [](auto change) {
    auto manifest = sample();
    change(manifest);
    try {
      format_manifest(manifest);
    } catch (const c10::ValueError& error) {
      return message_of(error);
    }
    return std::string();
  };
  EXPECT_EQ(fault([](Manifest& m) { m.identity[0].second = "\xff"; }), "the job's model is '\\xff', wanted UTF-8");
  EXPECT_EQ(fault([](Manifest& m) { m.trainer[0].second = "\xff"; }), "the trainer's epoch is '\\xff', wanted UTF-8");
  EXPECT_EQ(fault([](Manifest& m) { m.identity[1] = m.identity[0]; }),
            "the job's key 'model' is given twice, wanted it once");
  EXPECT_EQ(fault([](Manifest& m) { m.trainer[1] = m.trainer[0]; }),
            "the trainer's key 'epoch' is given twice, wanted it once");
}

TEST(ShardIndex, ComesBack) {
  const std::map<std::string, std::string> map = {{"a", "rank_0000.safetensors"}, {"b", "rank_0001.safetensors"}};
  const auto text = format_shard_index(map, 123);
  EXPECT_EQ(parse_shard_index(text, "i"), map);
  EXPECT_NE(text.find("\"total_size\": 123"), std::string::npos);
}

TEST(ShardIndex, FileNamesThatLeadElsewhereAreRejected) {
  const auto fault = [](const std::string& value) {
    return text_of<DataError>([&] { parse_shard_index(R"({"weight_map":{"w":)" + value + "}}", "i"); });
  };
  for (const std::string name : {"../x", "a/b", "/etc/passwd", "..", ".hidden", "", R"(a\\b)", R"(a\u0000b)"}) {
    EXPECT_TRUE(fault('"' + name + '"')
                    .ends_with("', wanted a file name in the same folder: the file is damaged, use another copy"))
        << name;
  }
  EXPECT_EQ(fault("7"), "'i': weight_map 'w' is '7', wanted a file name: the file is damaged, use another copy");
  EXPECT_EQ(text_of<DataError>([] { parse_shard_index("{}", "i"); }),
            "'i': weight_map is missing, wanted an object of file names: the file is damaged, use another copy");
  EXPECT_EQ(text_of<DataError>([] { parse_shard_index(R"({"weight_map":{"a":"x","a":"y"}})", "i"); }),
            "'i': the key 'a' is given twice, wanted it once: the file is damaged, use another copy");
}

TEST(Fields, TypesAreChecked) {
  const Fields fields = {{"epoch", int64_t{3}}, {"best", 0.5}, {"name", "x"}, {"flag", true}};
  EXPECT_EQ(whole_number(fields, "epoch"), 3);
  EXPECT_EQ(number(fields, "epoch"), 3.0);
  EXPECT_EQ(number(fields, "best"), 0.5);
  EXPECT_EQ(text(fields, "name"), "x");
  EXPECT_EQ(text_of<DataError>([&] { whole_number(fields, "best"); }), "best is 0.500000, wanted a whole number");
  EXPECT_EQ(text_of<DataError>([&] { number(fields, "flag"); }), "flag is true, wanted a number");
  EXPECT_EQ(text_of<DataError>([&] { text(fields, "none"); }), "none is missing, wanted a text");
  EXPECT_EQ(text_of<DataError>([&] { whole_number(fields, "name"); }), "name is 'x', wanted a whole number");
}

TEST(Checksum, EqualsTheReferenceProgram) {
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");  // printf '' | xxhsum -H2
  EXPECT_EQ(checksum_of({"\0\1\2", 3}), "e3b55f57945a17cf5f4299fc161c9cbb");
}

}  // namespace
}  // namespace tandem::storage
