#include "tests/device/device_kernels.h"

#include <algorithm>

#include "tandem/base/device_kernels.h"
#include "tandem/kernels/detail/gpu_instances.h"
#include "tandem/kernels/gpu_kernels.h"
#include "tandem/kernels/grid/abn_grid.h"
#include "tandem/kernels/grid/activation_grid.h"
#include "tandem/kernels/grid/block_code_grid.h"
#include "tandem/kernels/grid/host_grid.h"
#include "tandem/kernels/grid/score_grid.h"
#include "tests/device/delayed_streams.h"
#include "tests/device/device_memory.h"

namespace tandem::test {

void install_device_kernels() { set_gpu_kernels(at::kPrivateUse1); }

}  // namespace tandem::test

// The functions of gpu_kernels.h, in the place of those of the library: their passes run on a HostGrid when the stream
// comes to them, and once at once, on what memory will hold then (tests/device/device_work.h).
namespace tandem::kernels::gpu {
namespace {

using test::Side;

/// From addresses of the device to memory of the host.
class Places {
 public:
  explicit Places(Side side) : side_(side) {}

  template <class T>
  T* operator()(T* address) {
    if (address == nullptr) return nullptr;
    auto place = test::place_of(address, side_);
    keepers_.push_back(std::move(place.keeper));
    return static_cast<T*>(place.memory);
  }

  const std::vector<std::shared_ptr<void>>& keepers() const { return keepers_; }

 private:
  Side side_;
  std::vector<std::shared_ptr<void>> keepers_;
};

/// prepare(places) returns the work with pointers of the host; the work gets a grid.
template <class Prepare>
int start(void* stream, const Prepare& prepare) {
  HostGrid grid;
  Places now(Side::expected), later(Side::memory);
  prepare(now)(grid);
  test::DelayedStreams::get().push(test::stream_of_handle(stream), [work = prepare(later), keepers = later.keepers()] {
    HostGrid own;
    work(own);
  });
  return 0;
}

template <class T, class S>
Block<T, S> placed(const Block<T, S>& block, Places& at) {
  return {at(block.products), at(block.factors), block.rows, block.columns};
}

AbnChannels placed(const AbnChannels& of, Places& at) { return {at(of.g), at(of.bias), at(of.inverse)}; }

template <class S>
AbnBackward<S> placed(const AbnBackward<S>& in, Places& at) {
  return {in.kind, in.slope, at(in.z), at(in.gradient), at(in.sides), at(in.centre)};
}

template <class T>
ExponentRows<T> placed(const ExponentRows<T>& rows, Places& at) {
  return {at(rows.exponent), at(rows.sum)};
}

template <class T>
RunningRows<T> placed(const RunningRows<T>& rows, Places& at) {
  return {at(rows.maximum), at(rows.sum), at(rows.total)};
}

template <class T>
ShareRows<T> placed(const ShareRows<T>& rows, Places& at) {
  return {at(rows.log_sum), at(rows.share), at(rows.floor)};
}

template <class T, class S>
TargetEntries<T, S> placed(const TargetEntries<T, S>& of, Places& at) {
  return {at(of.rows), at(of.places), of.first, placed(of.block, at)};
}

// Bodies of for_each().

template <class T>
AbnScaleBody<T> placed(const AbnScaleBody<T>& how, Places& at) {
  return {at(how.weight), at(how.bias),       at(how.mean),  at(how.inverse),
          how.least,      placed(how.to, at), at(how.scale), at(how.offset)};
}

template <class T>
AbnParameterBody<T> placed(const AbnParameterBody<T>& how, Places& at) {
  return {placed(how.of, at),    how.centred,    at(how.sum),     at(how.product),  at(how.weight_gradient),
          at(how.bias_gradient), at(how.factor), at(how.by_bias), at(how.by_weight)};
}

template <class T>
AbnShiftBody<T> placed(const AbnShiftBody<T>& how, Places& at) {
  return {placed(how.of, at), how.centred, how.rows, at(how.by_bias), at(how.by_weight), at(how.slope), at(how.shift)};
}

template <class T>
TileScaleBody<T> placed(const TileScaleBody<T>& how, Places& at) {
  return {at(how.exponents), at(how.log_sum), at(how.share), at(how.scale)};
}

template <class T, class S>
ExponentiateAgainBody<T, S> placed(const ExponentiateAgainBody<T, S>& how, Places& at) {
  return {placed(how.block, at), at(how.exponents), how.packs};
}

template <class T>
AddToFeaturesBody<T> placed(const AddToFeaturesBody<T>& how, Places& at) {
  return {at(how.rows), at(how.places), how.first, at(how.targets), at(how.weight), how.dim, how.packs, at(how.sum)};
}

template <class T, class S>
AddToWeightBody<T, S> placed(const AddToWeightBody<T, S>& how, Places& at) {
  return {at(how.rows),   at(how.places), at(how.starts), how.first,  at(how.targets),
          at(how.inputs), how.dim,        how.packs,      at(how.sum)};
}

template <class T, class S>
ScoreTargetBody<T, S> placed(const ScoreTargetBody<T, S>& how, Places& at) {
  return {placed(how.of, at), at(how.targets), how.margin, how.scale, how.has_product};
}

template <class T, class S>
PutTargetBody<T, S> placed(const PutTargetBody<T, S>& how, Places& at) {
  return {placed(how.of, at), at(how.targets), how.leaves_out};
}

template <class T, class S>
ClearTargetBody<T, S> placed(const ClearTargetBody<T, S>& how, Places& at) {
  return {placed(how.of, at)};
}

template <class T>
AddTargetBody<T> placed(const AddTargetBody<T>& how, Places& at) {
  return {at(how.rows), at(how.targets), placed(how.sums, at)};
}

template <class T>
TargetLineBody<T> placed(const TargetLineBody<T>& how, Places& at) {
  return {at(how.rows), at(how.targets), at(how.line)};
}

template <class T>
TargetGradientBody<T> placed(const TargetGradientBody<T>& how, Places& at) {
  return {at(how.rows), at(how.targets), placed(how.shares, at), how.smoothing};
}

template <class T, class S>
ReadTargetGradientBody<T, S> placed(const ReadTargetGradientBody<T, S>& how, Places& at) {
  return {placed(how.of, at), at(how.targets)};
}

template <class T, class S>
PutTargetGradientBody<T, S> placed(const PutTargetGradientBody<T, S>& how, Places& at) {
  return {placed(how.of, at),   at(how.targets),       at(how.starts),    how.normalise_features,
          how.normalise_weight, at(how.along_classes), at(how.along_rows)};
}

}  // namespace

bool are_built() { return true; }
const char* error_text(int) { return "the test device refuses nothing"; }

template <class Body>
int for_each(const Body& body, int64_t count, void* stream) {
  return start(stream, [&](Places& at) {
    return [own = placed(body, at), count](HostGrid& grid) { grid.for_each(count, own); };
  });
}

template <class S>
int activate(Curve curve, const S* x, int64_t count, S* y, void* stream) {
  return start(stream, [&](Places& at) {
    return [curve, from = at(x), count, to = at(y)](HostGrid& grid) { activate_on(grid, curve, from, count, to); };
  });
}

template <class S>
int differentiate(Curve curve, const S* x, const S* gradient, int64_t count, S* out, void* stream) {
  return start(stream, [&](Places& at) {
    return [curve, from = at(x), by = at(gradient), count, to = at(out)](HostGrid& grid) {
      differentiate_on(grid, curve, from, by, count, to);
    };
  });
}

template <class S>
int abn_forward(const AbnForward<AbnNumber<S>>& how, int64_t rows, int64_t channels, S* x, uint8_t* sides,
                void* stream) {
  return start(stream, [&](Places& at) {
    const AbnForward<AbnNumber<S>> own = {how.kind, how.slope, at(how.scale), at(how.offset)};
    return [own, rows, channels, values = at(x), bits = at(sides)](HostGrid& grid) {
      abn_forward_on(grid, own, rows, channels, values, bits);
    };
  });
}

int64_t abn_scratch(int64_t rows, int64_t channels) { return kernels::abn_scratch(rows, channels); }

template <class S>
int abn_gradient_sums(const AbnBackward<S>& in, int64_t rows, int64_t channels, const AbnUnfolded<S>& to, double* sum,
                      double* product, void* scratch, void* stream) {
  return start(stream, [&](Places& at) {
    const AbnUnfolded<S> unfolded = {at(to.y), at(to.dy)};
    return [own = placed(in, at), rows, channels, unfolded, sums = at(sum), products = at(product),
            room = at(static_cast<std::byte*>(scratch))](HostGrid& grid) {
      abn_gradient_sums_on(grid, own, rows, channels, unfolded, sums, products, room);
    };
  });
}

template <class S>
int abn_gradient_apply(const AbnBackward<S>& in, const AbnApply<AbnNumber<S>>& how, int64_t rows, int64_t channels,
                       S* out, void* stream) {
  return start(stream, [&](Places& at) {
    const AbnApply<AbnNumber<S>> by = {at(how.factor), at(how.slope), at(how.shift)};
    return [own = placed(in, at), by, rows, channels, to = at(out)](HostGrid& grid) {
      abn_gradient_apply_on(grid, own, by, rows, channels, to);
    };
  });
}

template <class T>
int64_t score_scratch(int64_t rows, int64_t columns) {
  return kernels::score_scratch<T>(rows, columns);
}

template <class T, class S>
int add_block(const Block<T, S>& block, const RunningRows<T>& running, void* scratch, void* stream) {
  return start(stream, [&](Places& at) {
    return [of = placed(block, at), own = placed(running, at),
            room = at(static_cast<std::byte*>(scratch))](HostGrid& grid) { add_block_on(grid, of, own, room); };
  });
}

template <class T, class S>
int differentiate_block(const Block<T, S>& block, const ShareRows<T>& shares, T filter, T* along_classes,
                        T* along_samples, void* scratch, void* stream) {
  return start(stream, [&](Places& at) {
    return [of = placed(block, at), own = placed(shares, at), filter, classes = at(along_classes),
            samples = at(along_samples), room = at(static_cast<std::byte*>(scratch))](HostGrid& grid) {
      differentiate_block_on(grid, of, own, filter, classes, samples, room);
    };
  });
}

template <class T, class S>
int exponentiate_block(const Block<T, S>& block, int32_t* exponents, const ExponentRows<T>& running, void* scratch,
                       void* stream) {
  return start(stream, [&](Places& at) {
    return [of = placed(block, at), own = placed(running, at), to = at(exponents),
            room = at(static_cast<std::byte*>(scratch))](HostGrid& grid) {
      exponentiate_block_on(grid, of, to, own, room);
    };
  });
}

template <class T, class S>
int project_along(const S* gradient, const T* weight, const T* factors, int64_t rows, int64_t columns, T* along,
                  void* stream) {
  return start(stream, [&](Places& at) {
    return [from = at(gradient), own = at(weight), by = at(factors), rows, columns, to = at(along)](HostGrid& grid) {
      project_along_on(grid, from, own, by, rows, columns, to);
    };
  });
}

template <class T, class S>
int add_along(const S* gradient, const T* weight, const T* along, int64_t rows, int64_t columns, T* out, void* stream) {
  return start(stream, [&](Places& at) {
    return [from = at(gradient), own = at(weight), by = at(along), rows, columns, to = at(out)](HostGrid& grid) {
      add_along_on(grid, from, own, by, rows, columns, to);
    };
  });
}

int add_rounded(const uint16_t* values, int64_t count, float* sum, void* stream) {
  return start(stream, [&](Places& at) {
    return [from = at(values), count, to = at(sum)](HostGrid& grid) { add_rounded_on(grid, from, count, to); };
  });
}

template <class T>
int inverse_lengths(const T* values, int64_t rows, int64_t columns, T* out, void* stream) {
  return start(stream, [&](Places& at) {
    return [from = at(values), rows, columns, to = at(out)](HostGrid& grid) {
      inverse_lengths_on(grid, from, rows, columns, nullptr, to);
    };
  });
}

int round_rows(const float* values, int64_t rows, int64_t columns, uint16_t* rounded, float* inverse_lengths,
               void* stream) {
  return start(stream, [&](Places& at) {
    return [from = at(values), rows, columns, to = at(rounded), lengths = at(inverse_lengths)](HostGrid& grid) {
      inverse_lengths_on(grid, from, rows, columns, to, lengths);
    };
  });
}

int encode(const float* x, int64_t count, int8_t* codes, float* scales, void* stream) {
  return start(stream, [&](Places& at) {
    return [from = at(x), count, to = at(codes), by = at(scales)](HostGrid& grid) {
      encode_on(grid, from, count, to, by);
    };
  });
}

int decode(const int8_t* codes, const float* scales, int64_t count, float* x, void* stream) {
  return start(stream, [&](Places& at) {
    return [from = at(codes), by = at(scales), count, to = at(x)](HostGrid& grid) {
      decode_on(grid, from, by, count, to);
    };
  });
}

TANDEM_GPU_ALL

}  // namespace tandem::kernels::gpu
