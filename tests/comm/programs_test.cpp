#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "tandem/comm/collectives.h"
#include "tandem/comm/point_to_point.h"
#include "tandem/comm/world.h"

// Random programs of operators: any order, sizes, roots, sub-groups and asynchronous forms, against the same functions
// of all ranks' inputs in one process. RC_PARAMS="max_success=10000" runs as many of them.
namespace tandem::comm {
namespace {

using Sizes = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

constexpr int kKinds = 10;
const char* const kNames[kKinds] = {"broadcast",  "reduce_sum",     "all_reduce", "gather",  "scatter",
                                    "all_gather", "reduce_scatter", "all_to_all", "message", "barrier"};

/// One line of a program. The numbers are whatever was drawn; each rank takes from them what the operator needs.
struct Line {
  int kind = 0, root = 0, op = 0, dim = 0;
  bool is_sub_group = false, is_async = false;
  Sizes sizes;  // 25 of them: from each of five ranks to each
};

std::ostream& operator<<(std::ostream& out, const Line& line) {
  out << kNames[line.kind] << (line.is_async ? "_async" : "") << (line.is_sub_group ? " in a sub-group" : "")
      << " root " << line.root << " op " << line.op << " dim " << line.dim << " sizes";
  for (const auto size : line.sizes) out << ' ' << size;
  return out;
}

rc::Gen<Line> any_line() {
  return rc::gen::build<Line>(
      rc::gen::set(&Line::kind, rc::gen::inRange(0, kKinds)), rc::gen::set(&Line::root, rc::gen::inRange(0, 5)),
      rc::gen::set(&Line::op, rc::gen::inRange(0, 4)), rc::gen::set(&Line::dim, rc::gen::inRange(0, 2)),
      rc::gen::set(&Line::is_sub_group, rc::gen::arbitrary<bool>()),
      rc::gen::set(&Line::is_async, rc::gen::arbitrary<bool>()),
      rc::gen::set(&Line::sizes, rc::gen::container<Sizes>(25, rc::gen::inRange<int64_t>(0, 4))));
}

/// Whole numbers, so that every sum is exact.
Tensor input_of(int rank, int line, int64_t rows, int64_t dim) {
  const auto x = at::arange(rows * 2, at::kDouble).reshape({rows, 2}) + 100 * rank + 1000 * line;
  return dim == 0 ? x : x.t().contiguous();
}

/// One line as a group of n ranks sees it.
class Step {
 public:
  Step(const Line& line, int number, std::vector<int> members)
      : line_(line), number_(number), members_(std::move(members)), n_(static_cast<int>(members_.size())) {
    root_ = line.root % n_;
  }

  Handle begin(ProcessGroup& group) const {
    const int rank = group.rank();
    const auto x = input(rank);
    switch (line_.kind) {
      case 0:
        return broadcast_async(x, root_, group);
      case 1:
        return reduce_sum_async(x, root_, group);
      case 2:
        return all_reduce_async(x, group, static_cast<Reduce>(line_.op));
      case 3:
        return gather_async(x, root_, group, line_.dim, line_.op == 0 ? Sizes() : brought());
      case 4:
        return scatter_async(x, root_, group, line_.dim, brought());
      case 5:
        return all_gather_async(x, group, line_.dim, line_.op == 0 ? Sizes() : brought());
      case 6:
        return reduce_scatter_async(x, group, line_.dim, brought());
      case 7:
        return all_to_all_async(x, group, line_.dim, sent(rank), line_.op == 0 ? Sizes() : received(rank));
      case 8:
        return message(x, group);
      default:
        barrier(group);
        return Handle([] { return Tensor(); });
    }
  }

  Tensor wanted(int rank) const {
    Tensors xs;
    for (int other = 0; other < n_; ++other) xs.push_back(input(other));
    const auto nothing = input(rank).narrow(line_.dim, 0, 0);
    switch (line_.kind) {
      case 0:
        return xs[root_];
      case 1:
        return rank == root_ ? at::stack(xs).sum(0) : at::empty({0}, at::kDouble);
      case 2:
        return reduced(at::stack(xs));
      case 3:
        return rank == root_ ? at::cat(xs, line_.dim) : nothing;
      case 4:
        return xs[root_].split_with_sizes(brought(), line_.dim)[rank];
      case 5:
        return at::cat(xs, line_.dim);
      case 6:
        return at::stack(xs).sum(0).split_with_sizes(brought(), line_.dim)[rank];
      case 7: {
        Tensors parts;
        for (int from = 0; from < n_; ++from) parts.push_back(xs[from].split_with_sizes(sent(from), line_.dim)[rank]);
        return at::cat(parts, line_.dim);
      }
      case 8:
        return xs[(rank + n_ - 1) % n_];
      default:
        return Tensor();
    }
  }

 private:
  int64_t size(int from, int to) const { return line_.sizes[5 * from + to]; }
  Sizes brought() const { return sent(0); }
  Sizes sent(int rank) const {
    Sizes sizes;
    for (int to = 0; to < n_; ++to) sizes.push_back(size(rank, to));
    return sizes;
  }
  Sizes received(int rank) const {
    Sizes sizes;
    for (int from = 0; from < n_; ++from) sizes.push_back(size(from, rank));
    return sizes;
  }

  int64_t rows(int rank) const {
    const auto sum = [](const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); };
    if (line_.kind == 3 || line_.kind == 5) return brought()[rank];
    if (line_.kind == 7) return sum(sent(rank));
    if (line_.kind == 4 || line_.kind == 6) return sum(brought());
    return line_.kind == 8 ? size(rank, 0) : size(0, 0);
  }

  Tensor input(int rank) const { return input_of(members_[rank], number_, rows(rank), line_.dim); }

  Tensor reduced(const Tensor& stacked) const {
    switch (static_cast<Reduce>(line_.op)) {
      case Reduce::mean:
        return stacked.sum(0) / n_;
      case Reduce::max:
        return stacked.amax(0);
      case Reduce::min:
        return stacked.amin(0);
      default:
        return stacked.sum(0);
    }
  }

  /// A ring: to the next rank, from the one before.
  Handle message(const Tensor& x, ProcessGroup& group) const {
    if (n_ == 1) return Handle([x] { return x; });
    const int next = (group.rank() + 1) % n_, previous = (group.rank() + n_ - 1) % n_;
    auto sending = send_async(x, next, group, line_.op);
    const auto received = recv(previous, group, line_.op);
    sending.wait();
    return Handle([received] { return received; });
  }

  const Line& line_;
  int number_;
  std::vector<int> members_;
  int n_, root_ = 0;
};

/// Every rank's part in a program. Begun operations end before the next line that is not asynchronous.
void run_program(const std::vector<Line>& program, ProcessGroup& world) {
  const auto half = world.split(world.rank() % 2);
  std::vector<std::pair<Handle, Tensor>> begun;
  const auto finish = [&] {
    for (auto& [handle, wanted] : begun) {
      const auto got = handle.wait();
      if (wanted.defined() && !(got.sizes() == wanted.sizes() && got.equal(wanted)))
        throw std::runtime_error("differs");
    }
    begun.clear();
  };
  for (size_t i = 0; i < program.size(); ++i) {
    auto& group = program[i].is_sub_group ? *half : world;
    const Step step(program[i], static_cast<int>(i), group.members());
    if (!program[i].is_async) finish();
    begun.emplace_back(step.begin(group), step.wanted(group.rank()));
    if (!program[i].is_async) finish();
  }
  finish();
}

void check_programs(Transport transport, const char* what) {
  const bool holds = rc::check(what, [transport] {
    const int n = *rc::gen::inRange(1, 6);
    const auto program = *rc::gen::container<std::vector<Line>>(any_line());
    WorldOptions options;
    options.transport = transport;
    options.timeout = std::chrono::seconds(20);
    run_ranks(
        n, [&](ProcessGroup& group) { run_program(program, group); }, options);
  });
  EXPECT_TRUE(holds);
}

TEST(Programs, InMemory) { check_programs(Transport::memory, "in memory"); }

TEST(Programs, OverSegments) { check_programs(Transport::segments, "over segments"); }

TEST(Programs, OverGloo) { check_programs(Transport::sockets, "over Gloo"); }

}  // namespace
}  // namespace tandem::comm
