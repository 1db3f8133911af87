#include "tandem/report/detail/svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem::report {
namespace {

using Numbers = std::vector<double>;
using Texts = std::vector<std::string>;

TEST(Svg, MarkupIsEscaped) {
  EXPECT_EQ(detail::escape_markup("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  EXPECT_EQ(detail::escape_markup("汉字 é"), "汉字 é");
  EXPECT_EQ(detail::escape_markup(std::string("a\0b\x1f\xff", 5)), "a\uFFFDb\uFFFD\uFFFD");
  EXPECT_EQ(detail::escape_markup("\xE6\xB1"), "\uFFFD");  // a character cut short
}

TEST(Svg, TicksAreRoundNumbersThatEncloseTheData) {
  EXPECT_EQ(detail::nice_ticks(0, 10, 5), (Numbers{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(detail::nice_ticks(-3, 17, 5), (Numbers{-5, 0, 5, 10, 15, 20}));
  EXPECT_EQ(detail::nice_ticks(92.1, 99.7, 5), (Numbers{92, 94, 96, 98, 100}));
  EXPECT_EQ(detail::nice_ticks(5, 5, 4), (Numbers{2, 4, 6, 8}));
  EXPECT_EQ(detail::nice_ticks(0, 0, 2), (Numbers{-0.5, 0, 0.5}));
  EXPECT_EQ(detail::nice_ticks(std::nan(""), 1, 5), (Numbers{0, 1}));
  EXPECT_EQ(detail::nice_ticks(0, INFINITY, 5), (Numbers{0, 1}));
}

TEST(Svg, TicksOfAnyDataAreFewAndEncloseIt) {
  for (double low = -1e12; low < 1e12; low = low * (low < 0 ? 0.37 : 2.9) + 1e-9) {
    for (const double span : {1e-300, 1e-7, 0.3, 7.0, 1e5, 1e15}) {
      const auto ticks = detail::nice_ticks(low, low + span, 5);
      ASSERT_GE(ticks.size(), 2U);
      ASSERT_LE(ticks.size(), 9U);
      const double unseen = 1e-8 * (span + std::abs(low));
      EXPECT_LE(ticks.front(), low + unseen);
      EXPECT_GE(ticks.back(), low + span - unseen);
    }
  }
}

TEST(Svg, ByteTicksStepByPowersOfTwo) {
  EXPECT_EQ(detail::byte_ticks(1000, 4), (Numbers{0, 256, 512, 768, 1024}));
  EXPECT_EQ(detail::byte_ticks(0, 4), (Numbers{0, 1}));
}

TEST(Svg, LabelsOfOneAxisHaveTheSameDecimals) {
  EXPECT_EQ(detail::tick_labels({0, 0.1, 0.2}), (Texts{"0.0", "0.1", "0.2"}));
  EXPECT_EQ(detail::tick_labels({0, 500, 1000}), (Texts{"0", "500", "1,000"}));
  EXPECT_EQ(detail::tick_labels({-0.25, 0, 0.25}), (Texts{"-0.2", "0.0", "0.2"}));
  EXPECT_EQ(detail::tick_labels({0, 1e-6, 2e-6}), (Texts{"0", "1e-06", "2e-06"}));
  EXPECT_EQ(detail::tick_labels({0, 1e9}), (Texts{"0", "1e+09"}));
}

TEST(Svg, NumbersForReaders) {
  EXPECT_EQ(detail::short_number(0.123456), "0.1235");
  EXPECT_EQ(detail::short_number(1234567), "1,234,567");
  EXPECT_EQ(detail::short_number(std::nan("")), "nan");
  EXPECT_EQ(detail::short_number(-INFINITY), "-inf");
}

TEST(Svg, ElementsAreWrittenAsTheyAreDrawn) {
  detail::Svg svg(10, 20.5, "a <b>");
  svg.rectangle(1, 2.125, 3, -0.001, "c0", "hint & more");
  svg.line(0, 0, 1, 1, "grid");
  svg.polyline({{0, 1}, {2.5, 3}}, "curve s0");
  svg.text(1, 2, "x<y", "small", detail::Svg::Anchor::middle);
  EXPECT_EQ(svg.str(false),
            "<svg viewBox=\"0 0 10 20.5\" width=\"10\" height=\"20.5\" role=\"img\" aria-label=\"a &lt;b&gt;\">\n"
            "<rect x=\"1\" y=\"2.12\" width=\"3\" height=\"0\" class=\"c0\"><title>hint &amp; more</title></rect>\n"
            "<line x1=\"0\" y1=\"0\" x2=\"1\" y2=\"1\" class=\"grid\"/>\n"
            "<polyline points=\"0,1 2.5,3\" class=\"curve s0\"/>\n"
            "<text x=\"1\" y=\"2\" class=\"small\" text-anchor=\"middle\">x&lt;y</text>\n"
            "</svg>\n");
  EXPECT_NE(svg.str(true).find("xmlns=\"http://www.w3.org/2000/svg\""), std::string::npos);
}

}  // namespace
}  // namespace tandem::report
