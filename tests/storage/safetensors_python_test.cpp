#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tandem/base/error.h"
#include "tandem/storage/safetensors.h"
#include "tests/storage/header_mutation.h"
#include "tests/support/python.h"

namespace tandem::storage {
namespace {

using test::python;
using test::python_has_safetensors;
using test::run_python;
using test::spill;
using test::TemporaryFolder;

/// Against the format's own library, through Python's safetensors and torch.
class SafetensorsPython : public testing::Test {
 protected:
  void SetUp() override {
    if (!python_has_safetensors()) GTEST_SKIP() << python() << " lacks torch or safetensors";
  }

  void expect_python_agrees(const std::string& script) {
    const auto result = run_python(folder_, script);
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_EQ(result.output, "");
  }

  TemporaryFolder folder_;
};

// The same dictionary on both sides: name, dtype and values by one rule.
constexpr const char* kDictionary = R"(
import torch, json, struct
from safetensors.torch import load_file, save_file
from safetensors import safe_open, deserialize
types = dict(f64=torch.float64, f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16, i64=torch.int64,
             i32=torch.int32, i16=torch.int16, i8=torch.int8, u8=torch.uint8, b=torch.bool)
want = {name: (torch.arange(15.0).reshape(3, 5) - 4).abs().to(t) for name, t in types.items()}
want['transposed'] = torch.arange(24.0).reshape(4, 6).t().contiguous()
want['scalar'] = torch.tensor(2.5)
want['empty'] = torch.empty(0, 7, dtype=torch.int16)
want['汉字'] = torch.tensor([float('nan'), float('inf'), -0.0])
def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.numpy(force=True).tobytes() == b.numpy(force=True).tobytes() \
        if a.dtype != torch.bfloat16 else b.dtype == a.dtype and a.shape == b.shape and torch.equal(a.view(torch.int16), b.view(torch.int16))
)";

std::vector<NamedTensor> dictionary() {
  const std::pair<const char*, at::ScalarType> types[] = {
      {"f64", at::kDouble}, {"f32", at::kFloat}, {"f16", at::kHalf}, {"bf16", at::kBFloat16}, {"i64", at::kLong},
      {"i32", at::kInt},    {"i16", at::kShort}, {"i8", at::kChar},  {"u8", at::kByte},       {"b", at::kBool}};
  std::vector<NamedTensor> tensors;
  const auto values = (at::arange(15, at::kFloat).reshape({3, 5}) - 4).abs();
  for (const auto& [name, type] : types) tensors.push_back({name, values.to(type)});
  tensors.push_back({"transposed", at::arange(24, at::kFloat).reshape({4, 6}).t()});
  tensors.push_back({"scalar", at::scalar_tensor(2.5)});
  tensors.push_back({"empty", at::empty({0, 7}, at::kShort)});
  tensors.push_back({"汉字", at::tensor({NAN, INFINITY, -0.0F})});
  return tensors;
}

TEST_F(SafetensorsPython, OpensOurFilesWithEqualBytesAndStoresInTheSameOrder) {
  write_safetensors(folder_ / "ours", dictionary(), {{"step", "7"}});
  expect_python_agrees(std::string(kDictionary) + R"(
found = load_file('ours')
assert found.keys() == want.keys(), found.keys()
for name in want: assert same(found[name], want[name]), name
with safe_open('ours', 'pt') as file:
    assert file.metadata()['format'] == 'pt' and file.metadata()['step'] == '7'
save_file(want, 'theirs', {'format': 'pt'})
def order(path):
    data = open(path, 'rb').read()
    return [name for name in json.loads(data[8:8 + struct.unpack('<Q', data[:8])[0]]) if name != '__metadata__']
assert order('ours') == order('theirs'), (order('ours'), order('theirs'))
)");
}

TEST_F(SafetensorsPython, ItsFilesOpenHereWithEqualBytes) {
  expect_python_agrees(std::string(kDictionary) + "save_file(want, 'theirs', {'note': 'n'})\n");
  const SafetensorsFile file(folder_ / "theirs");
  EXPECT_EQ(file.metadata().at("note"), "n");
  for (const auto& [name, tensor] : dictionary()) {
    const auto found = file.read(name);
    ASSERT_EQ(found.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(found.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(found.view(-1).view(at::kByte).equal(tensor.contiguous().view(-1).view(at::kByte))) << name;
  }
}

TEST_F(SafetensorsPython, RejectsTheKnownTrapsToo) {
  const auto tensor = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::vector<std::string> traps = {
      tensor("[2]", "[4,12]"),
      tensor("[2]", "[0,4]"),
      tensor("[1]", "[0,4]"),
      tensor("[4]", "[0,16]"),
      tensor("[-1]", "[0,8]"),
      tensor("[2.0]", "[0,8]"),
      tensor("[1e2]", "[0,8]"),
      tensor("[99999999999999999999]", "[0,8]"),
      tensor("[4294967296,4294967296,4294967296]", "[0,8]"),
      tensor("[2]", "[8,0]"),
      tensor("[2]", "[0,8,9]"),
      R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      R"({"__metadata__":{"k":1}})",
      R"({"\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      R"({"a":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
      tensor("[2]", "[0,8]") + std::string("\0}", 2),
      tensor("[2]", "[0,8]") + "{",
      "[]",
      "{"};
  for (size_t i = 0; i < traps.size(); ++i) {
    spill(folder_ / ("trap" + std::to_string(i)), safetensors_bytes(traps[i], 8));
    EXPECT_THROW(SafetensorsFile(folder_ / ("trap" + std::to_string(i))), DataError) << traps[i].substr(0, 100);
  }
  expect_python_agrees("from safetensors import deserialize\nfor i in range(" + std::to_string(traps.size()) + R"():
    data = open(f'trap{i}', 'rb').read()
    try: deserialize(data)
    except Exception: continue
    print('accepted', i, data[:200])
)");
}

/// Every file we accept, the format's library accepts with the same tensors. Of what it accepts we reject only what the
/// parser's header says.
TEST_F(SafetensorsPython, JudgesMutatedFilesAlike) {
  std::ofstream verdicts(folder_ / "verdicts", std::ios::binary);
  const auto put = [&](const std::string& bytes) {
    const uint64_t size = bytes.size();
    verdicts.write(reinterpret_cast<const char*>(&size), 8).write(bytes.data(), static_cast<std::streamsize>(size));
  };
  for (uint64_t seed = 1'000'000; seed < 1'010'000; ++seed) {
    const auto file = mutated_file(seed);
    std::string verdict = "accepted";
    try {
      const auto header = detail::parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "x");
      for (const auto& entry : header.entries) {
        verdict.append("\x1e").append(entry.name).append("\x1f").append(entry.dtype);
        auto numbers = entry.shape;
        numbers.push_back(static_cast<int64_t>(header.data_begin + entry.begin));
        numbers.push_back(static_cast<int64_t>(entry.end - entry.begin));
        for (const auto value : numbers) verdict.append("\x1f").append(std::to_string(value));
      }
    } catch (const DataError& error) {
      verdict = error.what();
    }
    put(file);
    put(verdict);
  }
  verdicts.close();
  expect_python_agrees(R"(
import struct
from safetensors import deserialize
stricter = ['is given twice', " field is '", "wanted an object, one of", "wanted '{'", 'wanted no NUL', "'__metadata__' is null",
            'wanted whole bytes that fit 60 bits', 'whole numbers from 0 to 2^63 - 1']
data, at, counts = open('verdicts', 'rb').read(), 0, {}
def take():
    global at
    size, = struct.unpack_from('<Q', data, at)
    at += 8 + size
    return data[at - size:at]
while at < len(data):
    file, verdict = take(), take().decode()
    try: theirs = deserialize(file)
    except Exception as error: theirs = error
    ours, they = verdict.startswith('accepted'), isinstance(theirs, list)
    counts[ours, they] = counts.get((ours, they), 0) + 1
    if ours and not they: print('only we accept', file, theirs)
    elif they and not ours and not any(reason in verdict for reason in stricter): print('only we reject', file, verdict)
    elif ours:
        lines = [line.split('\x1f') for line in verdict.split('\x1e')[1:]]
        if sorted(line[0] for line in lines) != sorted(name for name, _ in theirs): print('names differ', lines, theirs)
        for name, dtype, *numbers in lines:
            *shape, begin, size = map(int, numbers)
            tensor = dict(theirs)[name]
            if (tensor['dtype'], tensor['shape'], bytes(tensor['data'])) != (dtype, shape, file[begin:begin + size]):
                print('tensors differ', file, name)
assert counts[True, True] > 300 and counts[False, False] > 3000, counts
)");
}

}  // namespace
}  // namespace tandem::storage
