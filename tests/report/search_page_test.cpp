#include "tandem/report/search_page.h"

#include <gtest/gtest.h>

namespace tandem::report {
namespace {

CellDrawing cell() {
  return {.title = "a < b",
          .inputs = {"before", "last"},
          .nodes = {{{"skip_connect", 0}, {"max_pool_3x3", 1}}, {{"sep_conv_3x3", 2}}},
          .outputs = {2, 3}};
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(CellDrawing, HasABoxAValueAndAWireAnEdge) {
  const auto svg = cell_svg(cell());
  EXPECT_EQ(count(svg, "<rect"), 5U);
  EXPECT_EQ(count(svg, "class=\"wire\""), 5U);  // two of them to the output
  for (const std::string text : {">before<", ">node 1<", ">output<", ">sep_conv_3x3<", "a &lt; b", "<style>"}) {
    EXPECT_EQ(count(svg, text), text == "a &lt; b" ? 2U : 1U) << text;
  }
  EXPECT_EQ(count(cell_svg(cell(), false), "<style>"), 0U);
}

TEST(CellDrawing, EveryWireGoesDownAndRight) {
  const auto svg = cell_svg(cell());
  for (size_t at = svg.find(" d=\"M"); at != std::string::npos; at = svg.find(" d=\"M", at + 1)) {
    int x = 0, y = 0, to_y = 0, to_x = 0;
    ASSERT_EQ(sscanf(svg.c_str() + at, " d=\"M%d %dV%dH%d", &x, &y, &to_y, &to_x), 4);
    EXPECT_GT(to_x, x);
    EXPECT_GT(to_y, y);
  }
}

TEST(SearchPage, HasAFrameATestAndShowsTheLast) {
  SearchPage page{
      .title = "search", .kinds = {"normal"}, .edges = {"0 → 2", "1 → 2", "2 → 3"}, .operations = {{"a", "b"}}};
  for (const int64_t step : {10, 20, 30}) {
    page.frames.push_back(
        {.step = step, .accuracy = 0.5, .cells = {cell()}, .shares = {{{0.25, 0.75}, {1, 0}, {0.5, 0.5}}}});
  }
  const auto html = render_search_page(page);
  EXPECT_EQ(count(html, "<section"), 3U);
  EXPECT_EQ(count(html, "class=\"frame shown\""), 1U);
  EXPECT_GT(html.find("frame shown"), html.find("step 20"));
  EXPECT_EQ(count(html, "<svg"), 3U);
  EXPECT_EQ(count(html, ">75</td>"), 3U);
  EXPECT_EQ(count(html, "<style>"), 1U);
  EXPECT_EQ(html.find("http://www.w3.org"), html.rfind("//", html.find("www.w3.org")) - 5) << "no other address";
  EXPECT_FALSE(render_search_page({.title = "none"}).empty());
}

}  // namespace
}  // namespace tandem::report
