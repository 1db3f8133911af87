#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tandem::report::detail {

/// Escapes text for elements and quoted attributes of XML and HTML. Characters that are not allowed there become
/// U+FFFD.
std::string escape_markup(std::string_view text);

/// About `count` ticks, multiples of 1, 2 or 5 times a power of ten, from the last at or below `low` to the first at or
/// above `high`. At least two: equal ends are widened. If an end is not finite, returns 0 and 1.
std::vector<double> nice_ticks(double low, double high, int count);

/// Ticks from 0 to at or above `high`, in steps of a power of two.
std::vector<double> byte_ticks(double high, int count);

/// One label per tick, all with the same number of decimals: {"0", "0.5", "1"} -> {"0.0", "0.5", "1.0"}.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

/// A number for people: 4 digits, thousands separated.
std::string short_number(double value);

/// Draws in user units, y downwards. Classes set the style, see chart_style().
class Svg {
 public:
  enum class Anchor { start, middle, end };

  /// `label` describes the picture for screen readers.
  Svg(double width, double height, std::string_view label);

  void rectangle(double x, double y, double width, double height, std::string_view classes, std::string_view hint = "");
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view classes);
  void polygon(const std::vector<std::pair<double, double>>& points, std::string_view classes,
               std::string_view hint = "");
  void dot(double x, double y, std::string_view classes, std::string_view hint = "");
  void text(double x, double y, std::string_view text, std::string_view classes, Anchor anchor = Anchor::start,
            double turned = 0);

  /// The whole <svg> element. `stand_alone`: includes the style sheet, for a file of its own.
  std::string str(bool stand_alone) const;

 private:
  std::string head_, body_;
};

/// The style sheet for the classes of all figures: light, or dark if the reader's system is.
std::string_view chart_style();

}  // namespace tandem::report::detail
