#include "tandem/storage/safetensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tests/storage/disk_limit.h"
#include "tests/storage/header_mutation.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

using test::slurp;
using test::spill;
using test::TemporaryFolder;
using test::text_of;

Tensor counting(at::IntArrayRef shape, at::ScalarType type) {
  return at::arange(c10::multiply_integers(shape), at::kFloat).reshape(shape).to(type);
}

std::vector<NamedTensor> one_of_each_type() {
  std::vector<NamedTensor> tensors;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
                          at::kByte, at::kBool, at::kUInt16, at::kUInt32, at::kUInt64, at::kComplexFloat}) {
    tensors.push_back({std::string("t.") + c10::toString(type), counting({3, 5}, type)});
  }
  return tensors;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  const auto x = a.resolve_conj().contiguous(), y = b.resolve_conj().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

void expect_round_trip(const std::vector<NamedTensor>& tensors) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x.safetensors", tensors);
  const SafetensorsFile file(folder / "x.safetensors");
  EXPECT_EQ(file.names().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(same_bytes(file.read(name), tensor)) << name;
    EXPECT_EQ(file.dtype(name), tensor.scalar_type());
    EXPECT_EQ(at::IntArrayRef(file.shape(name)), tensor.sizes());
  }
  file.verify();
}

TEST(Safetensors, EveryTypeComesBackBitForBit) { expect_round_trip(one_of_each_type()); }

TEST(Safetensors, EveryLayoutComesBackInCOrder) {
  const auto base = counting({4, 6}, at::kFloat);
  expect_round_trip({{"transposed", base.t()},
                     {"every other", base.slice(1, 0, 6, 2)},
                     {"expanded", base.select(0, 1).expand({3, 6})},
                     {"scalar", at::scalar_tensor(2.5)},
                     {"empty", at::empty({0, 7})},
                     {"conjugate", at::conj(counting({3}, at::kComplexFloat))},
                     {"of a graph", counting({2}, at::kFloat).requires_grad_()},
                     {"汉字 \"\\\n", base}});
  expect_round_trip({});
  expect_round_trip({{"over one chunk", counting({1'300'000}, at::kFloat)}});
}

TEST(Safetensors, RandomDictionariesComeBack) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CounterRng rng(seed, 1);
    std::vector<NamedTensor> tensors;
    const auto kinds = one_of_each_type();
    for (uint32_t i = rng.next() % 9; i > 0; --i) {
      std::vector<int64_t> shape;
      for (uint32_t dims = rng.next() % 5; dims > 0; --dims) shape.push_back(rng.next() % 4);
      const auto type = kinds[rng.next() % kinds.size()].tensor.scalar_type();
      tensors.push_back({"n" + std::to_string(rng.next()), counting(shape, type)});
    }
    expect_round_trip(tensors);
  }
}

TEST(Safetensors, StoresByAlignmentThenNameAfterAMultipleOfEightBytes) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x", std::vector<NamedTensor>{{"b", counting({3}, at::kByte)},
                                                           {"z", counting({1}, at::kFloat)},
                                                           {"a", counting({1}, at::kFloat)},
                                                           {"i", counting({1}, at::kLong)}});
  const SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.names(), (std::vector<std::string>{"i", "a", "z", "b"}));
  EXPECT_EQ(file.data_bytes(), 19U);
  EXPECT_EQ((file.size() - file.data_bytes()) % 8, 0U);
}

TEST(Safetensors, MetadataHoldsFormatAndAChecksumATensor) {
  const TemporaryFolder folder;
  const std::vector<NamedTensor> tensors = {{"a", counting({3}, at::kByte)}};
  write_safetensors(folder / "x", tensors, {{"step", "7"}, {"tandem.xxh3.gone", "stale"}, {"tandem.xxh3.a", "stale"}});
  // xxhsum -H2 of the bytes 00 01 02.
  EXPECT_EQ(SafetensorsFile(folder / "x").metadata(),
            (std::map<std::string, std::string>{
                {"format", "pt"}, {"step", "7"}, {"tandem.xxh3.a", "e3b55f57945a17cf5f4299fc161c9cbb"}}));
}

TEST(Safetensors, OneFlippedBitAnywhereIsNoticed) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x", one_of_each_type(), {{"note", "n"}});
  const auto sound = slurp(folder / "x");
  const SafetensorsFile before(folder / "x");
  CounterRng rng(3, 1);
  for (int i = 0; i < 2000; ++i) {
    auto bytes = sound;
    const size_t at = rng.next() % bytes.size();
    bytes[at] ^= static_cast<char>(1 << rng.next() % 8);
    spill(folder / "y", bytes);
    try {
      const SafetensorsFile file(folder / "y");
      file.verify();
      EXPECT_NE(file.header_checksum(), before.header_checksum()) << "byte " << at;
    } catch (const DataError&) {
    }
  }
}

TEST(Safetensors, ReadNamesTheDamagedTensor) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x",
                    std::vector<NamedTensor>{{"good", counting({4}, at::kLong)}, {"w", counting({4}, at::kFloat)}});
  auto bytes = slurp(folder / "x");
  bytes.back() ^= 1;
  spill(folder / "x", bytes);
  const SafetensorsFile file(folder / "x");
  EXPECT_TRUE(same_bytes(file.read("good"), counting({4}, at::kLong)));
  const auto text = text_of<DataError>([&] { file.read("w"); });
  EXPECT_EQ(text.find("'" + (folder / "x").string() + "': tensor 'w' has checksum "), 0U) << text;
  EXPECT_NE(
      text.find(": its bytes are damaged, use another copy (a program that changes tensors must drop tandem.xxh3.*)"),
      std::string::npos)
      << text;
  EXPECT_EQ(text_of<DataError>([&] { file.verify(); }), text);
}

TEST(Safetensors, AnyBytesOfATensorAreReadAndAllAreChecked) {
  const TemporaryFolder folder;
  const auto path = folder / "x";
  const auto tensor = at::arange(600'000, at::kFloat);  // more than two pieces of a MiB
  write_safetensors(path, std::vector<NamedTensor>{{"w", tensor}});
  const std::string whole(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  const SafetensorsFile file(path);
  for (const auto& [first, count] : std::vector<std::pair<size_t, size_t>>{
           {0, 0}, {0, 2'400'000}, {4, 8}, {1'048'576, 1'048'576}, {1'000'000, 1'400'000}, {2'399'996, 4}, {0, 4}}) {
    std::string part(count, '?');
    file.read_sound("w", first, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part, whole.substr(first, count)) << first << " " << count;
  }
  auto bytes = slurp(path);
  bytes.back() ^= 1;
  spill(path, bytes);
  EXPECT_NE(text_of<DataError>([&] { SafetensorsFile(path).read_sound("w", 0, {}); }).find("has checksum"),
            std::string::npos);
  write_safetensors(path, std::vector<NamedTensor>{{"w", at::full({2}, INFINITY)}, {"n", at::ones({2}, at::kLong)}});
  SafetensorsFile(path).read_sound("n", 0, {});
  EXPECT_EQ(text_of<NonFiniteError>([&] { SafetensorsFile(path).read_sound("w", 0, {}); }),
            "'" + path.string() + "': tensor 'w' holds inf or NaN, wanted finite numbers");
  EXPECT_EQ(SafetensorsFile(path).read("w").numel(), 2);  // whose file it is decides what is asked of it
}

/// With a checksum all of the tensor is checked, without one only the range is read.
TEST(Safetensors, ARangeOfATensorIsReadFromAnyFile) {
  const TemporaryFolder folder;
  const auto path = folder / "x", other = folder / "y";
  const auto tensor = at::tensor({0.f, 1.f, 2.f, INFINITY});
  write_safetensors(path, std::vector<NamedTensor>{{"w", tensor}});
  const std::string whole(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  const std::string header = R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  auto foreign = safetensors_bytes(header, whole.size());
  spill(other, foreign.replace(foreign.size() - whole.size(), whole.size(), whole));
  for (const auto& from : {path, other}) {
    const SafetensorsFile file(from);
    for (const auto& [first, count] : std::vector<std::pair<size_t, size_t>>{{0, 16}, {4, 8}, {12, 4}, {16, 0}}) {
      std::string part(count, '?');
      file.read("w", first, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(part, whole.substr(first, count)) << first << " " << count;
    }
    std::string part(8, '?');
    EXPECT_EQ(text_of<c10::ValueError>([&] { file.read("w", 12, std::as_writable_bytes(std::span(part))); }),
              "tensor 'w' has 16 bytes, wanted 8 from byte 12");
  }
  auto bytes = slurp(path);
  bytes.back() ^= 1;
  spill(path, bytes);
  std::string part(4, '?');
  EXPECT_NE(text_of<DataError>([&] {
              SafetensorsFile(path).read("w", 0, std::as_writable_bytes(std::span(part)));
            }).find("has checksum"),
            std::string::npos);
}

TEST(Safetensors, FilesOfOthersAreReadWithoutChecksumsButNotVerified) {
  const TemporaryFolder folder;
  auto bytes = safetensors_bytes(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},)"
                                 R"("b":{"dtype":"F4","shape":[2],"data_offsets":[2,3]}})",
                                 3);
  bytes[bytes.size() - 2] = 2;
  spill(folder / "x", bytes);
  const SafetensorsFile file(folder / "x");
  const auto name = "'" + (folder / "x").string() + "': ";
  EXPECT_EQ(text_of<DataError>([&] { file.read("a"); }),
            name + "tensor 'a' has a byte above 1, wanted 0 or 1 for BOOL");
  EXPECT_EQ(text_of<DataError>([&] { file.read("b"); }), name +
                                                             "tensor 'b' dtype is F4, wanted one that libtorch has: "
                                                             "convert it with the program that wrote it");
  EXPECT_EQ(text_of<DataError>([&] { file.read("c"); }),
            name + "tensor 'c' is missing, wanted one of the 2 that the file has");
  EXPECT_NE(text_of<DataError>([&] { file.verify(); }).find(", wanted one in the metadata: "), std::string::npos);
}

TEST(Safetensors, TruncatedFilesAreRejectedAtEveryLength) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x", std::vector<NamedTensor>{{"a", counting({9}, at::kFloat)}});
  const auto sound = slurp(folder / "x");
  for (size_t length = 0; length < sound.size(); ++length) {
    spill(folder / "y", sound.substr(0, length));
    EXPECT_THROW(SafetensorsFile(folder / "y"), DataError) << length;
  }
}

TEST(Safetensors, AFileThatShrinksWhileOpenIsAnErrorNotACrash) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x", std::vector<NamedTensor>{{"a", counting({100'000}, at::kFloat)}});
  const SafetensorsFile file(folder / "x");
  std::filesystem::resize_file(folder / "x", 5000);
  const auto text = text_of<DataError>([&] { file.read("a"); });
  EXPECT_NE(text.find(" ends at byte 5000, wanted "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(": it was cut short, use another copy")) << text;
}

TEST(Safetensors, AFullDiskIsNamedAndLeavesNoFile) {
  const TemporaryFolder folder;
  const std::vector<NamedTensor> tensors = {{"a", counting({5'000'000}, at::kFloat)}};
  for (const rlim_t bytes : {0, 100, 1'000'000, 19'999'999}) {
    const DiskLimit full(bytes);
    EXPECT_EQ(text_of<IoError>([&] { write_safetensors(folder / "x", tensors); }),
              "cannot write '" + (folder / "x").string() +
                  "': File too large: free some space there or choose another folder");
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  }
  EXPECT_EQ(text_of<IoError>([&] { write_safetensors("/dev/full", tensors); }),
            "cannot write '/dev/full': No space left on device: free some space there or choose another folder");
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));  // only plain files are cleared away
}

TEST(Safetensors, PathsThatCannotBeAreNamed) {
  const TemporaryFolder folder;
  const auto inside = (folder.path() / "none" / "x").string();
  EXPECT_EQ(text_of<IoError>([&] { write_safetensors(inside, std::vector<NamedTensor>{}); }),
            "cannot create '" + inside + "': No such file or directory");
  EXPECT_EQ(text_of<IoError>([&] { SafetensorsFile file(inside); }),
            "cannot read '" + inside + "': No such file or directory");
  EXPECT_EQ(text_of<IoError>([&] { SafetensorsFile file(folder.path()); }),
            "cannot read '" + folder.path().string() + "': Is a directory");
  EXPECT_EQ(text_of<DataError>([&] { SafetensorsFile file("/dev/null"); }),
            "'/dev/null' is a device or a pipe, wanted a file");
}

TEST(Safetensors, RefusesWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  const auto value_fault = [&](const std::vector<NamedTensor>& tensors,
                               std::map<std::string, std::string> metadata = {}) {
    try {
      write_safetensors(folder / "x", tensors, metadata);
    } catch (const c10::ValueError& error) {
      return message_of(error);
    }
    return std::string();
  };
  const auto tensor = counting({2}, at::kFloat);
  EXPECT_EQ(value_fault({{"a", tensor}, {"a", tensor}}), "the tensor's name 'a' is given twice, wanted it once");
  for (const auto& name : std::vector<std::string>{"", "__metadata__", "\xff", std::string(4097, 'n')}) {
    EXPECT_TRUE(value_fault({{name, tensor}}).ends_with(", wanted UTF-8 of 1 to 4096 bytes without NUL")) << name;
  }
  EXPECT_EQ(value_fault({{"a", Tensor()}}), "tensor 'a' is undefined, sparse or of over 16 dims, wanted a strided one");
  EXPECT_EQ(value_fault({}, {{"k", "\xff"}}), "metadata 'k' is '\\xff', wanted UTF-8");
  try {
    write_safetensors(folder / "x", std::vector<NamedTensor>{{"a", at::zeros({2}, at::kComplexDouble)}});
    FAIL();
  } catch (const c10::TypeError& error) {
    EXPECT_EQ(message_of(error), "tensor 'a' is of type ComplexDouble, wanted one that safetensors has: convert it");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

}  // namespace
}  // namespace tandem::storage
