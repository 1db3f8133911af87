#include "tests/device/device_work.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <cstring>
#include <optional>
#include <utility>

#include "tests/device/delayed_streams.h"
#include "tests/device/device_memory.h"

namespace tandem::test {
namespace {

/// What libtorch keeps for each thread, as it is where operators run.
class BelowAutograd {
 public:
  BelowAutograd() : threads_(at::get_num_threads()) {
    if (threads_ != 1) at::set_num_threads(1);  // the order of a sum depends on them
  }
  ~BelowAutograd() {
    if (threads_ != 1) at::set_num_threads(threads_);
  }

 private:
  const int threads_;
  const at::AutoDispatchBelowADInplaceOrView below_;
  const at::NoGradGuard no_grad_;
  const at::DisableRecordFunctionGuard unrecorded_;
};

c10::Stream stream_of(const Tensors& inputs) {
  for (const auto& x : inputs) {
    if (x.defined() && !x.is_cpu()) return current_stream(x.device().index());
  }
  return current_stream(-1);
}

/// A result of its own on the device, which holds what `made` does.
at::Tensor new_like(const at::Tensor& made, c10::Device device) {
  if (!made.defined()) return {};
  if (made.is_sparse()) {
    return at::_sparse_coo_tensor_unsafe(new_like(made._indices(), device), new_like(made._values(), device),
                                         made.sizes())
        ._coalesced_(made.is_coalesced());
  }
  auto result = at::empty_strided(made.sizes(), made.strides(), made.options().device(device));
  on_host(result, Side::expected).copy_(made);
  return result;
}

void copy_parts(const at::Tensor& from, const at::Tensor& to) {
  if (!from.defined()) return;
  if (from.is_sparse()) {
    copy_parts(from._indices(), to._indices());
    copy_parts(from._values(), to._values());
  } else {
    to.copy_(from);
  }
}

/// What an operator may give another size must be a tensor of its own.
at::Tensor as_input(const at::Tensor& x, bool is_written, Side side) {
  if (is_written && x.defined() && !x.is_cpu() && x.numel() == 0) return at::empty(x.sizes(), x.scalar_type());
  return on_host(x, side);
}

Tensors as_inputs(const Tensors& inputs, const std::vector<bool>& written, Side side) {
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) all.push_back(as_input(inputs[i], written[i], side));
  return all;
}

bool is_view_of(const at::Tensor& made, const at::Tensor& input) {
  return made.defined() && input.defined() && !made.is_sparse() && !input.is_sparse() && made.is_same(input);
}

/// The input that a result is, or -1.
int place_of(const at::Tensor& made, const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_view_of(made, inputs[i])) return static_cast<int>(i);
  }
  return -1;
}

/// A number of the program's stays one: it leaves the type of the arithmetic to the tensors beside it.
at::Tensor own_copy(const at::Tensor& x) {
  auto copy = x.clone();
  copy.unsafeGetTensorImpl()->set_wrapped_number(x.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

bool are_same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

void compare(const at::Tensor& memory, const at::Tensor& expected, const std::string& name) {
  if (!are_same_bytes(memory, expected)) {
    DelayedStreams::get().note(name + " read numbers that were not there yet, or not any more");
  }
}

/// The results of a piece of work, and where they go.
struct Outcome {
  Tensors results;                                      // on the device
  std::vector<std::pair<size_t, at::Tensor>> to_write;  // a result's place, and its numbers on the host
};

Outcome place_results(const Tensors& made, const Tensors& inputs, const Tensors& given, c10::Device device) {
  Outcome outcome;
  for (size_t i = 0; i < made.size(); ++i) {
    if (const int at = place_of(made[i], inputs); at >= 0) {
      outcome.results.push_back(given[at]);
      continue;
    }
    outcome.results.push_back(new_like(made[i], device));
    if (made[i].defined()) outcome.to_write.emplace_back(i, on_host(outcome.results[i], Side::memory));
  }
  return outcome;
}

}  // namespace

Tensors give_work(const std::string& name, const Tensors& inputs, const std::vector<bool>& written, bool is_drawn,
                  const Body& body) {
  const auto stream = stream_of(inputs);
  auto& streams = DelayedStreams::get();
  const auto now = as_inputs(inputs, written, Side::expected);
  auto later = as_inputs(inputs, written, Side::memory);
  Tensors made;
  {
    const BelowAutograd guard;
    for (auto& x : later) {
      if (x.defined() && x.is_cpu() && place_of(x, inputs) >= 0) x = own_copy(x);  // the host may change its own
    }
    made = body(now);
  }
  // Inputs that have another size now.
  std::vector<std::pair<size_t, at::Tensor>> resized;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!written[i] || !inputs[i].defined() || now[i].sizes() == inputs[i].sizes()) continue;
    inputs[i].set_data(new_like(now[i], stream.device()));
    resized.emplace_back(i, on_host(inputs[i], Side::memory));
  }
  auto outcome = place_results(made, now, inputs, stream.device());
  if (is_drawn) {
    Tensors drawn;
    for (const auto& x : now) drawn.push_back(x.defined() && !x.is_sparse() ? x.clone() : x);
    Tensors results;
    for (const auto& x : made) results.push_back(x.defined() ? x.clone() : x);
    streams.push(stream, [drawn, later, results, to = outcome.to_write, written] {
      const BelowAutograd guard;
      for (size_t i = 0; i < later.size(); ++i) {
        if (written[i]) copy_parts(drawn[i], later[i]);
      }
      for (const auto& [i, target] : to) copy_parts(results[i], target);
    });
    return outcome.results;
  }
  streams.push(stream, [name, later, body, resized, to = outcome.to_write, &streams] {
    const BelowAutograd guard;
    try {
      const auto results = body(later);
      for (const auto& [i, target] : resized) copy_parts(later[i], target);
      for (const auto& [i, target] : to) copy_parts(results[i], target);
    } catch (const std::exception& error) {
      streams.note(name + " failed when its stream came to it: " + error.what());
    }
  });
  return outcome.results;
}

void wait_for(const at::Tensor& x, const std::string& name) {
  auto& streams = DelayedStreams::get();
  streams.count_wait();
  streams.run_until(streams.mark(current_stream(x.device().index())));
  const BelowAutograd guard;
  if (x.is_sparse()) {
    compare(on_host(x._values(), Side::memory), on_host(x._values(), Side::expected), name);
  } else {
    compare(on_host(x, Side::memory), on_host(x, Side::expected), name);
  }
}

namespace {

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool later) {
  if (!later) {
    wait_for(from, "a copy to the host");
    const BelowAutograd guard;
    to.copy_(on_host(from, Side::memory));
    return;
  }
  const BelowAutograd guard;
  const auto expected = on_host(from, Side::expected).clone();
  DelayedStreams::get().push(current_stream(from.device().index()),
                             [to, expected, source = on_host(from, Side::memory)] {
                               const BelowAutograd below;
                               compare(source, expected, "a copy to the host");
                               to.copy_(source);
                             });
}

void copy_from_host(const at::Tensor& from, const at::Tensor& to, bool later) {
  if (!later) DelayedStreams::get().count_wait();  // as CUDA's
  const BelowAutograd guard;
  on_host(to, Side::expected).copy_(from);
  const auto source = later ? from : from.clone();
  auto& streams = DelayedStreams::get();
  const auto expected = later ? from.clone() : at::Tensor();
  streams.push(current_stream(to.device().index()), [source, expected, target = on_host(to, Side::memory)] {
    const BelowAutograd below;
    if (expected.defined()) compare(source, expected, "a copy from the host");
    target.copy_(source);
  });
}

void copy_between(const at::Tensor& from, const at::Tensor& to) {
  auto& streams = DelayedStreams::get();
  const auto here = current_stream(to.device().index()), there = current_stream(from.device().index());
  streams.wait(here, streams.mark(there));
  give_work("copy_", {to, from}, {true, false}, false, [](const Tensors& of) {
    of[0].copy_(of[1]);
    return Tensors();
  });
  streams.wait(there, streams.mark(here));
}

}  // namespace

void copy_on_device(const at::Tensor& from, const at::Tensor& to, bool later) {
  if (from.is_cpu()) return copy_from_host(from, to, later);
  if (to.is_cpu()) return copy_to_host(from, to, later);
  copy_between(from, to);
}

}  // namespace tandem::test
