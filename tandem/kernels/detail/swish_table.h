#pragma once
#include <bit>
#include <cstdint>

// s(x) = 1 / (1 + e^-x) where x s(x) = z, by q = +-sqrt(z - minimum), in pieces, for the inverse of swish in float.
//
//   q     -0.45 ┊ ┊  ┊   ┊    ┊     ┊      ┊       ┊ ... ┊ 4.3   above: s is 1
//   piece      0 1  2   3    4     5      6      7       14   15
//
// They are short near the singularities of s, which lie at q = -0.5277 (x is -infinity) and 1.95 +- 1.1 i.
namespace tandem::kernels::detail {

/// x s(x) has its minimum kSwishLeast at x = kSwishAt.
inline constexpr double kSwishAt = -1.27846454276107379511, kSwishLeast = -0.27846454276107379511;

struct SwishTable {
  static constexpr int kPieces = 16, kDegree = 6;
  static constexpr double kFirst = -0.45, kLast = 4.3;

  // The piece of q is the whole part of log * (bits of v, as a number) + line * v + offset, v = q + shift. The bits of
  // v grow as its logarithm.
  float log = 0, line = 0, offset = 0, shift = 0.5277F;
  float cap = 4.31F;  // any q above is as good as this
  alignas(64) float centre[kPieces] = {};
  alignas(64) float coefficients[kDegree + 1][kPieces] = {};  // of (q - centre)^k; error: 0.15 units in the last place
};

/// e^(x / 2^15), squared 15 times as e^y - 1.
constexpr double exponential(double x) {
  const double y = x / 32768;
  double less_one = y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4)));
  for (int i = 0; i < 15; ++i) less_one *= less_one + 2;
  return less_one + 1;
}

/// The root of an increasing function.
template <class Function>
constexpr double bisected(double low, double high, Function function) {
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (function(middle) < 0 ? low : high) = middle;
  }
  return (low + high) / 2;
}

struct SwishPoint {
  double q, s;
};

constexpr SwishPoint swish_point(double x) {
  const double s = 1 / (1 + exponential(-x)), square = x * s - kSwishLeast;
  const double root = bisected(0, 8, [=](double r) { return r * r - square; });
  return {x < kSwishAt ? -root : root, s};
}

/// The powers of t, lowest first, of the polynomial through s at q - centre: by Newton's divided differences.
template <int count>
constexpr void interpolate(const SwishPoint (&points)[count], double centre, double (&powers)[count]) {
  double at[count] = {}, difference[count] = {};
  for (int i = 0; i < count; ++i) at[i] = points[i].q - centre;
  for (int i = 0; i < count; ++i) difference[i] = points[i].s;
  for (int order = 1; order < count; ++order) {
    for (int i = count - 1; i >= order; --i) {
      difference[i] = (difference[i] - difference[i - 1]) / (at[i] - at[i - order]);
    }
  }
  for (int i = count - 1; i >= 0; --i) {  // sum = sum * (t - at[i]) + difference[i]
    for (int k = count - 1; k > 0; --k) powers[k] = powers[k - 1] - powers[k] * at[i];
    powers[0] = difference[i] - powers[0] * at[i];
  }
}

constexpr SwishTable make_swish_table() {
  constexpr int kNodes = SwishTable::kDegree + 1, kPieces = SwishTable::kPieces - 1;
  constexpr double kChebyshev[] = {-0.97492791218182361, -0.78183148246802981, -0.43388373911755812, 0,
                                   0.43388373911755812,  0.78183148246802981,  0.97492791218182361};
  constexpr double kLog = 0.6;  // chosen for the least error
  SwishTable table;
  const auto place = [&](double q) {
    const double v = q + double{table.shift};
    return kLog * (static_cast<double>(std::bit_cast<uint64_t>(v)) / 0x1p52) + v;
  };
  const double first = place(SwishTable::kFirst), scale = kPieces / (place(SwishTable::kLast) - first);
  table.log = static_cast<float>(scale * kLog / 0x1p23);
  table.line = static_cast<float>(scale);
  table.offset = static_cast<float>(-scale * (first - kLog * (1023 - 127)));  // the types' biases of the exponent
  double begin = bisected(-20, 25, [](double x) { return swish_point(x).q - SwishTable::kFirst; });
  for (int piece = 0; piece < kPieces; ++piece) {
    const double end =
        bisected(begin, 25, [&](double x) { return (place(swish_point(x).q) - first) * scale - (piece + 1); });
    table.centre[piece] = static_cast<float>((swish_point(begin).q + swish_point(end).q) / 2);
    SwishPoint points[kNodes] = {};
    for (int i = 0; i < kNodes; ++i) points[i] = swish_point((begin + end) / 2 + kChebyshev[i] * (end - begin) / 2);
    double powers[kNodes] = {};
    interpolate(points, table.centre[piece], powers);
    for (int k = 0; k < kNodes; ++k) table.coefficients[k][piece] = static_cast<float>(powers[k]);
    begin = end;
  }
  table.coefficients[0][kPieces] = 1;
  return table;
}

inline constexpr SwishTable kSwishTable = make_swish_table();

}  // namespace tandem::kernels::detail
