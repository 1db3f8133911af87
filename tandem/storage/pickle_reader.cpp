#include "tandem/storage/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::storage {
namespace {

static_assert(std::endian::native == std::endian::little, "pickles are read as they lie in memory");

/// Named as in pickletools; the values are the format's.
enum class Op : uint8_t {
  mark = '(',
  empty_tuple = ')',
  stop = '.',
  binbytes = 'B',
  short_binbytes = 'C',
  reduce = 'R',
  binstring = 'T',
  short_binstring = 'U',
  binunicode = 'X',
  empty_list = ']',
  append = 'a',
  global = 'c',
  appends = 'e',
  binget = 'h',
  long_binget = 'j',
  binput = 'q',
  long_binput = 'r',
  tuple = 't',
  proto = 0x80,
  tuple2 = 0x86,
  newtrue = 0x88,
  newfalse = 0x89,
  short_binunicode = 0x8C,
  binunicode8 = 0x8D,
  binbytes8 = 0x8E,
  memoize = 0x94,
  frame = 0x95,
};

bool is_latin1(std::span<const std::byte> text) {
  while (!text.empty()) {
    const size_t length = latin1_length(text);
    if (length == 0) return false;
    text = text.subspan(length);
  }
  return true;
}

/// The stack machine that executes a pickle.
class PickleReader {
 public:
  PickleReader(std::span<const std::byte> file, std::string_view name) : file_(file), name_(name) {}

  Pickle read() {
    if (take_op() != Op::proto) fail("begins with another byte than 0x80, wanted a pickle of protocol 2 to 5");
    if (const auto version = take<uint8_t>(); version < 2 || version > 5) {
      fail("is of protocol " + std::to_string(version) + ", wanted 2 to 5");
    }
    for (Op op = take_op(); op != Op::stop; op = take_op()) execute(op);
    if (stack_.size() != 1) fail("ends with " + std::to_string(stack_.size()) + " values, wanted one");
    return {stack_.back(), std::move(sequences_)};
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const {
    throw DataError("'" + std::string(name_) + "': pickle[byte " + std::to_string(op_at_) + "] " + fault,
                    "use another copy, or write it with pickle.dump((list of encoded images, list of bool), file)");
  }

  template <class Number>
  Number take() {
    Number value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }

  Op take_op() {
    op_at_ = at_;
    return Op{take<uint8_t>()};
  }

  std::span<const std::byte> take_bytes(uint64_t length) {
    if (length > file_.size() - at_) {
      fail("needs " + std::to_string(length) + " bytes more, but the file has " + std::to_string(file_.size() - at_) +
           " left");
    }
    at_ += length;
    return file_.subspan(at_ - length, length);
  }

  std::string take_line() {
    constexpr size_t kLongest = 100;
    std::string line;
    for (char c; (c = take<char>()) != '\n'; line += c) {
      if (line.size() == kLongest || c < ' ' || c > '~') fail("names no function, wanted _codecs encode");
    }
    return line;
  }

  void execute(Op op) {
    switch (op) {
      case Op::mark:
        return marks_.push_back(stack_.size());
      case Op::empty_list:
        return push_sequence(PickleKind::list, {});
      case Op::empty_tuple:
        return push_sequence(PickleKind::tuple, {});
      case Op::append:
        return extend({pop()});
      case Op::appends:
        return extend(pop_to_mark());
      case Op::tuple:
        return push_sequence(PickleKind::tuple, pop_to_mark());
      case Op::tuple2: {
        const PickleValue second = pop(), first = pop();
        return push_sequence(PickleKind::tuple, {first, second});
      }
      case Op::newtrue:
        return stack_.push_back({PickleKind::boolean, {}, 1});
      case Op::newfalse:
        return stack_.push_back({PickleKind::boolean, {}, 0});
      case Op::short_binbytes:
      case Op::short_binstring:
        return push_bytes(take<uint8_t>());
      case Op::binbytes:
        return push_bytes(take<uint32_t>());
      case Op::binstring:
        return push_bytes(string_length());
      case Op::binbytes8:
        return push_bytes(take<uint64_t>());
      case Op::short_binunicode:
        return push_text(take<uint8_t>());
      case Op::binunicode:
        return push_text(take<uint32_t>());
      case Op::binunicode8:
        return push_text(take<uint64_t>());
      case Op::global:
        return push_function();
      case Op::reduce:
        return call();
      default:
        return execute_memo(op);
    }
  }

  void execute_memo(Op op) {
    switch (op) {
      case Op::binput:
        return memoize(take<uint8_t>());
      case Op::long_binput:
        return memoize(take<uint32_t>());
      case Op::memoize:
        return memoize(static_cast<uint32_t>(memo_.size()));
      case Op::binget:
        return recall(take<uint8_t>());
      case Op::long_binget:
        return recall(take<uint32_t>());
      case Op::frame:
        if (const auto length = take<uint64_t>(); length > file_.size() - at_) {
          fail("begins a frame of " + std::to_string(length) + " bytes, but the file has " +
               std::to_string(file_.size() - at_) + " left");
        }
        return;
      default: {
        char text[5];
        std::snprintf(text, sizeof text, "0x%02X", static_cast<unsigned>(op));
        fail(std::string("is opcode ") + text + ", wanted one of those that lists of bytes and bool need");
      }
    }
  }

  /// The lowest stack size that may be popped to: values below the last mark belong to an outer object.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleValue pop() {
    if (stack_.size() <= floor()) fail("takes a value from an empty stack");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }

  std::vector<PickleValue> pop_to_mark() {
    if (marks_.empty()) fail("has no mark before it");
    const auto first = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<PickleValue> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  void push_sequence(PickleKind kind, std::vector<PickleValue> values) {
    stack_.push_back({kind, {}, sequences_.size()});
    sequences_.push_back(std::move(values));
  }

  void extend(const std::vector<PickleValue>& values) {
    if (stack_.size() <= floor() || stack_.back().kind != PickleKind::list) fail("appends to what is no list");
    auto& list = sequences_[stack_.back().number];
    list.insert(list.end(), values.begin(), values.end());
  }

  /// BINSTRING is the only opcode with a signed length.
  uint64_t string_length() {
    const auto length = take<int32_t>();
    if (length < 0) fail("has length " + std::to_string(length) + ", wanted 0 or more");
    return static_cast<uint64_t>(length);
  }

  void push_bytes(uint64_t length) { stack_.push_back({PickleKind::bytes, take_bytes(length)}); }

  /// Checks the code points here, once, though many calls of encode may use the text.
  void push_text(uint64_t length) {
    const auto text = take_bytes(length);
    stack_.push_back({is_latin1(text) ? PickleKind::latin1_text : PickleKind::text, text});
  }

  void push_function() {
    const auto module = take_line(), function = take_line();
    if (module != "_codecs" || function != "encode") {
      fail("names " + module + "." + function + ", wanted _codecs.encode and no other function");
    }
    stack_.push_back({PickleKind::encode});
  }

  /// Executes encode(text, "latin1"): the result is the text, marked as bytes.
  void call() {
    const PickleValue arguments = pop(), function = pop();
    if (function.kind != PickleKind::encode || arguments.kind != PickleKind::tuple) fail("calls what is no function");
    const auto& values = sequences_[arguments.number];
    if (values.size() != 2 || values[0].kind != PickleKind::latin1_text || !is_text(values[1], "latin1")) {
      fail("calls _codecs.encode, wanted a str of code points below 256 and 'latin1' as its arguments");
    }
    stack_.push_back({PickleKind::encoded_bytes, values[0].bytes});
  }

  void memoize(uint32_t key) {
    if (stack_.size() <= floor()) fail("remembers a value of an empty stack");
    memo_[key] = stack_.back();
  }

  void recall(uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("recalls value " + std::to_string(key) + ", which was not remembered");
    stack_.push_back(found->second);
  }

  bool is_text(const PickleValue& value, std::string_view wanted) const {
    return value.kind == PickleKind::latin1_text &&
           std::ranges::equal(value.bytes, std::as_bytes(std::span(wanted.data(), wanted.size())));
  }

  std::span<const std::byte> file_;
  std::string_view name_;
  uint64_t at_ = 0, op_at_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;
  std::vector<std::vector<PickleValue>> sequences_;
  std::unordered_map<uint32_t, PickleValue> memo_;
};

}  // namespace

const char* name_of(PickleKind kind) {
  constexpr const char* kNames[] = {"bytes", "bytes", "a str", "a str", "a bool", "a list", "a tuple", "a function"};
  return kNames[static_cast<size_t>(kind)];
}

size_t latin1_length(std::span<const std::byte> text) {
  const auto first = std::to_integer<unsigned>(text[0]);
  if (first < 0x80) return 1;
  const bool is_pair = (first == 0xC2 || first == 0xC3) && text.size() > 1;
  return is_pair && (std::to_integer<unsigned>(text[1]) & 0xC0) == 0x80 ? 2 : 0;
}

Pickle read_pickle(std::span<const std::byte> file, std::string_view name) { return PickleReader(file, name).read(); }

}  // namespace tandem::storage
