#include "tandem/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

namespace tandem::report {
namespace {

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// Every element that is opened is closed in order, and no bare & or < stands in a text.
void expect_well_formed(const std::string& markup) {
  static const std::regex token(
      R"(<!doctype html>|<(/?)([a-z0-9]+)((?: [a-zA-Z0-9-]+="[^"<]*")*)(/?)>|&(?:amp|lt|gt|quot|#39);|<|&)");
  std::vector<std::string> open;
  for (std::sregex_iterator at(markup.begin(), markup.end(), token), end; at != end; ++at) {
    const auto& match = *at;
    const std::string text = match.str(), name = match[2];
    ASSERT_FALSE(text == "<" || text == "&") << markup.substr(match.position(), 80);
    if (name.empty() || name == "meta" || match[4] == "/") continue;
    if (match[1] == "") {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

RunReport sample() {
  RunReport report;
  report.title = "glyphs & <3,755> classes";
  report.subtitle = "4 ranks";
  report.summary = {{"top-1", "98.9 %"}, {"images per second", "1,530"}};
  report.curves = {
      {"Loss", "step", {{"train", {{0, 9}, {1, NAN}, {2, 4}, {3, 3}}}, {"held out", {{3, 5}}}}, "It falls & falls."}};
  report.memory = {{"sharded", {{10, 20, 30, 400, 5, 6, 7}, {10, 20, 30, 400, 5, 6, 8}}, {478, 479}},
                   {"naive", {{100, 200, 300, 400, 5, 6, 7}}, {}}};
  report.wire = {{0, "all_gather", 3, 3072}, {1, "all_gather", 3, 3072}, {1, "all_reduce", 1, 1 << 20}};
  report.settings = {{"data", "glyphs"}, {"note", "<script>alert('x')</script>"}};
  return report;
}

TEST(Report, IsOnePageWithoutScriptAndWithoutAnythingFromOutside) {
  const auto page = render_report(sample());
  expect_well_formed(page);
  EXPECT_TRUE(page.starts_with("<!doctype html>\n"));
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("<p class=\"note\">It falls &amp; falls.</p>"), std::string::npos);
  for (const std::string outside : {"http:", "https:", "url(", "src=", "@import", "<link"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(page.find("<h1>glyphs &amp; &lt;3,755&gt; classes</h1>"), std::string::npos);
  EXPECT_NE(page.find("<td>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;</td>"), std::string::npos);
  EXPECT_NE(page.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_NE(page.find("@media print"), std::string::npos);
}

TEST(Report, TablesHoldTheBytes) {
  const auto page = render_report(sample());
  EXPECT_NE(page.find("<tr><td data-label=\"rank\">1</td><td data-label=\"parameters\">10 B</td>"
                      "<td data-label=\"gradients\">20 B</td><td data-label=\"optimizer\">30 B</td>"
                      "<td data-label=\"activations\">400 B</td><td data-label=\"buffers\">5 B</td>"
                      "<td data-label=\"communication\">6 B</td><td data-label=\"other\">8 B</td>"
                      "<td data-label=\"peak\">479 B</td><td data-label=\"predicted\">479 B</td></tr>"),
            std::string::npos);
  EXPECT_NE(page.find("<td data-label=\"all_gather\">3.0 KiB in 3</td><td data-label=\"all_reduce\">–</td>"
                      "<td data-label=\"bytes\">3.0 KiB</td></tr>"),
            std::string::npos);
  EXPECT_NE(page.find("<td data-label=\"all_gather\">3.0 KiB in 3</td><td data-label=\"all_reduce\">1.0 MiB in 1</td>"),
            std::string::npos);
}

// On a narrow screen rows become lists, and each form of the head has a figure of its own, all over one axis.
TEST(Report, ANarrowScreenCutsNothing) {
  const auto page = render_report(sample());
  EXPECT_EQ(page.find("min-width:6"), std::string::npos);
  EXPECT_NE(page.find("@media (max-width:640px)"), std::string::npos);
  EXPECT_NE(page.find(".ranks td::before{content:attr(data-label)"), std::string::npos);
  EXPECT_EQ(count_of(page, "<table class=\"ranks\">"), 3U);
  EXPECT_EQ(count_of(page, "viewBox=\"0 0 920 400\""), 1U);
  EXPECT_EQ(count_of(page, "viewBox=\"0 0 460 419\""), 2U);
  EXPECT_EQ(count_of(page, ">1,024 B</text>") + count_of(page, ">1 KiB</text>"), 3U);
}

MemoryCurve curve_of_three_moments() {
  MemoryCurve curve{.name = "a < b", .seconds = {0, 1, 2}, .live = {{10}, {10, 5, 0, 100}, {10, 5}}, .peak = 1};
  curve.phases = {{"forward", 0, 1}, {"backward", 1, 2}};
  curve.blocks = {{"stem", 0, 2}};
  return curve;
}

TEST(MemoryCurve, StacksTheCategoriesAndMarksThePeak) {
  const auto svg = memory_curve_svg(curve_of_three_moments(), {.stand_alone = false});
  expect_well_formed(svg);
  EXPECT_EQ(count_of(svg, "<polygon"), kCategoryNames.size());
  for (const std::string text : {"a &lt; b", "peak 115 B", ">forward</text>", ">backward</text>", ">stem</text>"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  const auto empty = memory_curve_svg({.name = "nothing"});
  EXPECT_EQ(empty.find("<polygon"), std::string::npos);
  EXPECT_EQ(empty.find("nan"), std::string::npos);
}

TEST(Report, CurvesOfMemoryShareTheirAxes) {
  RunReport report;
  report.over_time = {curve_of_three_moments(), curve_of_three_moments()};
  report.over_time[1].live[1] = {10, 0, 0, 1000};
  report.tables = {{"Both", {"result", "peak"}, {{"a", "115 B"}}}};
  const auto page = render_report(report);
  expect_well_formed(page);
  EXPECT_EQ(count_of(page, ">1,024 B</text>") + count_of(page, ">1 KiB</text>"), 2U);
  EXPECT_NE(page.find("<td data-label=\"peak\">115 B</td>"), std::string::npos);
}

TEST(Report, EmptyPartsAreLeftOut) {
  RunReport report;
  report.title = "t";
  const auto page = render_report(report);
  expect_well_formed(page);
  EXPECT_EQ(page.find("<h2>"), std::string::npos);
  EXPECT_EQ(page.find("<svg"), std::string::npos);
}

TEST(LineChart, AGapSplitsTheCurve) {
  const auto svg = line_chart_svg({"Loss", "step", {{"train", {{0, 1}, {1, 2}, {2, NAN}, {3, 2}, {4, 1}}}}});
  EXPECT_EQ(count_of(svg, "<polyline"), 2U);
  EXPECT_EQ(count_of(svg, "<circle"), 4U);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(LineChart, OddDataIsDrawnWithFiniteCoordinates) {
  const double huge = std::numeric_limits<double>::max(), tiny = 5e-324;
  const std::vector<std::vector<std::pair<double, double>>> all = {{},
                                                                   {{3, 7}},
                                                                   {{0, NAN}},
                                                                   {{0, 0}, {1, 0}},
                                                                   {{0, INFINITY}, {1, 2}},
                                                                   {{5, 1}, {5, 2}},
                                                                   {{0, huge}, {1, -huge}},
                                                                   {{0, tiny}, {1, 2 * tiny}},
                                                                   {{0, 1e300}, {1e300, 1}}};
  for (const auto& points : all) {
    const auto svg = line_chart_svg({"t", "x", {{"s", points}}});
    expect_well_formed(svg);
    for (const std::string bad : {"nan", "inf\"", "inf,"}) EXPECT_EQ(svg.find(bad), std::string::npos) << svg;
  }
  EXPECT_NE(line_chart_svg({"t", "x", {}}).find("no data"), std::string::npos);
}

TEST(LineChart, LongSeriesStaySmallAndKeepTheirSpikes) {
  Series series{"loss", {}};
  for (int i = 0; i < 1'000'000; ++i) series.points.emplace_back(i, i == 777'777 ? 100.0 : std::sin(i));
  const auto svg = line_chart_svg({"Loss", "step", {series}});
  EXPECT_LT(svg.size(), 12'000U);
  EXPECT_NE(svg.find(",36 "), std::string::npos);  // the spike reaches the upper edge of the plot
}

TEST(MemoryFigure, BarsStackToTheTotalOnOneAxis) {
  const std::vector<MemoryBars> forms = {{"a", {{256, 0, 0, 256, 0, 0, 0}}, {}},
                                         {"b", {{512, 0, 0, 512, 0, 0, 0}}, {}}};
  const auto svg = memory_figure_svg(forms);
  expect_well_formed(svg);
  std::vector<double> heights;
  static const std::regex bar(R"re(height="([0-9.]+)" class="c[0-6]"><title>)re");
  for (std::sregex_iterator at(svg.begin(), svg.end(), bar), end; at != end; ++at)
    heights.push_back(std::stod((*at)[1]));
  ASSERT_EQ(heights.size(), 4U);
  EXPECT_EQ(heights[0], heights[1]);
  EXPECT_NEAR(heights[2], 2 * heights[0], 0.02);
  EXPECT_NE(svg.find(">512 B</text>"), std::string::npos);
  EXPECT_NE(svg.find(">1 KiB</text>"), std::string::npos);
  EXPECT_NE(svg.find("<title>rank 0, activations: 256 B</title>"), std::string::npos);
}

TEST(MemoryFigure, ALegendThatIsTooWideGoesOnInAFurtherLine) {
  const std::vector<MemoryBars> forms = {{"a", {{100, 0, 0, 0, 0, 0, 0}}, {100}}};
  const auto narrow = memory_figure_svg(forms, {.width = 460, .reach = 1000});
  expect_well_formed(narrow);
  static const std::regex place("<text x=\"([0-9.]+)\" y=\"(52|71)\">");
  for (std::sregex_iterator at(narrow.begin(), narrow.end(), place), end; at != end; ++at)
    EXPECT_LT(std::stod((*at)[1]), 440);
  EXPECT_NE(narrow.find("y=\"71\">predicted</text>"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find(">1 KiB</text>"), std::string::npos);  // the axis reaches what it has to
}

TEST(MemoryFigure, PredictionsAreMarked) {
  const std::vector<MemoryBars> forms = {{"a", {{100, 0, 0, 0, 0, 0, 0}, {90, 0, 0, 0, 0, 0, 0}}, {100, 95}}};
  EXPECT_EQ(count_of(memory_figure_svg(forms), "class=\"predicted\""), 3U);  // two bars and the legend
}

TEST(MemoryFigure, ManyRanksNoRanksAndNoFormsAreDrawn) {
  MemoryBars many{"many", {}, {}};
  for (int64_t rank = 0; rank < 1000; ++rank) many.ranks.push_back({rank, 1, 2, 3, 4, 5, 6});
  for (const auto& forms : {std::vector<MemoryBars>{many}, {{"none", {}, {}}}, {}, {many, {"none", {}, {}}}}) {
    const auto svg = memory_figure_svg(forms);
    expect_well_formed(svg);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_LT(count_of(svg, "text-anchor=\"middle\""), 60U);
  }
}

}  // namespace
}  // namespace tandem::report
