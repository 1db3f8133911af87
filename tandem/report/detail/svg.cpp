#include "tandem/report/detail/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "tandem/base/format.h"
#include "tandem/base/quote.h"

namespace tandem::report::detail {
namespace {

constexpr std::string_view kStyle = R"(
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:#5b6270}
.title{font-size:14px;font-weight:600;fill:#1b1f27}
.strong{font-weight:600;fill:#1b1f27}
.small{font-size:11px}
.surface{fill:#ffffff}
.grid{stroke:#e3e6eb;stroke-width:1}
.axis{stroke:#9aa2af;stroke-width:1}
.predicted{stroke:#1b1f27;stroke-width:1.5;stroke-dasharray:4 3}
.band{fill:#e3e6eb}
.other{fill:#cfd4dc}
.mark{fill:#1b1f27}
.curve{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.s0{stroke:#0072b2}.s1{stroke:#d55e00}.s2{stroke:#009e73}.s3{stroke:#cc79a7}
.s4{stroke:#e69f00}.s5{stroke:#56b4e9}.s6{stroke:#7f8792}
.c0{fill:#0072b2}.c1{fill:#56b4e9}.c2{fill:#009e73}.c3{fill:#e69f00}
.c4{fill:#cc79a7}.c5{fill:#d55e00}.c6{fill:#9aa2af}
.d0{fill:#0072b2}.d1{fill:#d55e00}.d2{fill:#009e73}.d3{fill:#cc79a7}
.d4{fill:#e69f00}.d5{fill:#56b4e9}.d6{fill:#7f8792}
.o1{fill-opacity:.14}.o2{fill-opacity:.26}.o3{fill-opacity:.38}.o4{fill-opacity:.5}
.o5{fill-opacity:.62}.o6{fill-opacity:.75}.o7{fill-opacity:.87}
.on{font-weight:600;fill:#ffffff}
@media (prefers-color-scheme:dark){
text{fill:#a3abb8}
.title,.strong{fill:#eceff4}
.surface{fill:#151920}
.grid{stroke:#2a303a}
.axis{stroke:#5d6675}
.predicted{stroke:#eceff4}
.band{fill:#2a303a}
.other{fill:#3a424f}
.mark{fill:#eceff4}
.s0{stroke:#4aa3df}.d0{fill:#4aa3df}.c0{fill:#1a7fc1}.c1{fill:#86cdf2}
}
)";

std::string printed(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

/// A coordinate as text: at most two decimals, never an exponent.
std::string place(double value) {
  auto text = printed("%.2f", std::isfinite(value) ? value : 0.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string places_of(const std::vector<std::pair<double, double>>& points) {
  std::string places;
  for (const auto& [x, y] : points) places.append(place(x)).append(",").append(place(y)).append(" ");
  if (!places.empty()) places.pop_back();
  return places;
}

std::string attribute(std::string_view name, std::string_view value) {
  std::string text = " ";
  return text.append(name).append("=\"").append(escape_markup(value)).append("\"");
}

std::string element(std::string_view name, const std::string& attributes, std::string_view hint) {
  std::string text = "<";
  text.append(name).append(attributes);
  if (hint.empty()) return text.append("/>\n");
  return text.append("><title>").append(escape_markup(hint)).append("</title></").append(name).append(">\n");
}

std::vector<double> stepped(double low, double high, double step) {
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  if (ticks.size() < 2) ticks.push_back((first + 1) * step);
  return ticks;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  static const std::string kContinuations = [] {  // bytes that continue a UTF-8 character
    std::string bytes;
    for (int byte = 0x80; byte < 0xC0; ++byte) bytes += static_cast<char>(byte);
    return bytes;
  }();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    auto length = utf8_length(text, at);
    const bool is_broken = length == 0;
    if (is_broken) length = text.find_first_not_of(kContinuations, at + 1) - at;
    const auto character = text.substr(at, length);
    at += character.size();
    const auto code = static_cast<unsigned char>(character[0]);
    if (character == "&")
      out += "&amp;";
    else if (character == "<")
      out += "&lt;";
    else if (character == ">")
      out += "&gt;";
    else if (character == "\"")
      out += "&quot;";
    else if (character == "'")
      out += "&#39;";
    else if (is_broken || (code < 0x20 && code != '\n' && code != '\t'))
      out += "\xEF\xBF\xBD";
    else
      out += character;
  }
  return out;
}

std::vector<double> nice_ticks(double low, double high, int count) {
  if (!std::isfinite(low) || !std::isfinite(high)) return {0, 1};
  constexpr double kHuge = 1e300, kTiny = 1e-290;  // beyond these, differences overflow or vanish
  if (low > high) std::swap(low, high);
  low = std::clamp(low, -kHuge, kHuge);
  high = std::clamp(high, -kHuge, kHuge);
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= std::max(size * 1e-9, kTiny)) {
    const double half = size > kTiny ? size / 2 : 0.5;
    low -= half;
    high += half;
  }
  const double rough = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double ratio = rough / power;
  return stepped(low, high, power * (ratio <= 1.0 ? 1 : ratio <= 2.0 ? 2 : ratio <= 5.0 ? 5 : 10));
}

std::vector<double> byte_ticks(double high, int count) {
  high = std::isfinite(high) ? std::max(high, 1.0) : 1.0;
  const double rough = high / std::max(count, 1);
  return stepped(0, high, std::max(1.0, std::exp2(std::ceil(std::log2(rough)))));
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1.0;
  const double size = std::max(std::abs(ticks.front()), std::abs(ticks.back()));
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  std::vector<std::string> labels;
  for (const double tick : ticks) {
    if (decimals > 4 || size >= 1e7) {
      labels.push_back(std::abs(tick) < step / 2 ? "0" : printed("%.3g", tick));
    } else if (decimals == 0) {
      labels.push_back(format_count(static_cast<int64_t>(std::llround(tick))));
    } else {
      labels.push_back(
          printed(("%." + std::to_string(decimals) + "f").c_str(), std::abs(tick) < step / 2 ? 0.0 : tick));
    }
  }
  return labels;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (std::abs(value) >= 1000 && std::abs(value) < 1e9) return format_count(std::llround(value));
  return printed("%.4g", value);
}

Svg::Svg(double width, double height, std::string_view label) {
  head_ = attribute("viewBox", "0 0 " + place(width) + " " + place(height)) + attribute("width", place(width)) +
          attribute("height", place(height)) + attribute("role", "img") + attribute("aria-label", label);
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view classes, std::string_view hint) {
  body_ += element("rect",
                   attribute("x", place(x)) + attribute("y", place(y)) + attribute("width", place(width)) +
                       attribute("height", place(height)) + attribute("class", classes),
                   hint);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  body_ += element("line",
                   attribute("x1", place(x1)) + attribute("y1", place(y1)) + attribute("x2", place(x2)) +
                       attribute("y2", place(y2)) + attribute("class", classes),
                   "");
}

void Svg::polyline(const std::vector<std::pair<double, double>>& points, std::string_view classes) {
  body_ += element("polyline", attribute("points", places_of(points)) + attribute("class", classes), "");
}

void Svg::polygon(const std::vector<std::pair<double, double>>& points, std::string_view classes,
                  std::string_view hint) {
  body_ += element("polygon", attribute("points", places_of(points)) + attribute("class", classes), hint);
}

void Svg::dot(double x, double y, std::string_view classes, std::string_view hint) {
  body_ += element(
      "circle",
      attribute("cx", place(x)) + attribute("cy", place(y)) + attribute("r", "3") + attribute("class", classes), hint);
}

void Svg::text(double x, double y, std::string_view text, std::string_view classes, Anchor anchor, double turned) {
  body_ += "<text" + attribute("x", place(x)) + attribute("y", place(y));
  if (!classes.empty()) body_ += attribute("class", classes);
  if (anchor != Anchor::start) body_ += attribute("text-anchor", anchor == Anchor::middle ? "middle" : "end");
  if (turned != 0) {
    body_ += attribute("transform", "rotate(" + place(turned) + " " + place(x) + " " + place(y) + ")");
  }
  body_.append(">").append(escape_markup(text)).append("</text>\n");
}

std::string Svg::str(bool stand_alone) const {
  std::string text = "<svg";
  if (stand_alone) text += attribute("xmlns", "http://www.w3.org/2000/svg");
  text.append(head_).append(">\n");
  if (stand_alone) {
    text.append("<style>").append(kStyle).append("</style>\n");
    text.append(
        element("rect", attribute("width", "100%") + attribute("height", "100%") + attribute("class", "surface"), ""));
  }
  return text.append(body_).append("</svg>\n");
}

std::string_view chart_style() { return kStyle; }

}  // namespace tandem::report::detail
