#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tandem::report::detail {

/// Text for XML and HTML, in elements and in quoted attributes; what is no character there becomes U+FFFD.
std::string escape_markup(std::string_view text);

/// Numbers 1, 2 or 5 times a power of ten, about `count` of them, from the last at or below `low` to the first at or
/// above `high`. At least two; not finite or equal ends are widened.
std::vector<double> nice_ticks(double low, double high, int count);

/// From 0 to at or above `high` in steps of a power of two.
std::vector<double> byte_ticks(double high, int count);

/// One label a tick, all with the same decimals: {"0", "0.5", "1"} -> {"0.0", "0.5", "1.0"}.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

/// A number for a reader: 4 digits, thousands separated.
std::string short_number(double value);

/// Draws in user units, y downwards. Looks come from classes, see chart_style().
class Svg {
 public:
  enum class Anchor { start, middle, end };

  /// `label` is read out instead of the picture.
  Svg(double width, double height, std::string_view label);

  void rectangle(double x, double y, double width, double height, std::string_view classes, std::string_view hint = "");
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view classes);
  void dot(double x, double y, std::string_view classes, std::string_view hint = "");
  void text(double x, double y, std::string_view text, std::string_view classes, Anchor anchor = Anchor::start,
            double turned = 0);

  /// The whole element. `stand_alone`: with its own style, to be a file.
  std::string str(bool stand_alone) const;

 private:
  std::string head_, body_;
};

/// The style sheet that the classes of all figures need: light, and dark where the reader's system is.
std::string_view chart_style();

}  // namespace tandem::report::detail
