#include "tandem/report/heat_map.h"

#include <gtest/gtest.h>

#include "tandem/report/detail/base64.h"
#include "tandem/report/report.h"

namespace tandem::report {
namespace {

HeatMap map_of(size_t classes) {
  HeatMap map{.title = "all", .names = {}, .counts = {}, .row_label = "class", .column_label = "taken for"};
  for (size_t i = 0; i < classes; ++i) {
    map.names.push_back("<" + std::to_string(i) + ">");
    map.counts.emplace_back(classes, 0);
    map.counts.back()[i] = 7;
    map.counts.back()[(i + 1) % classes] += 2;
  }
  return map;
}

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(HeatMap, ShadesSharesAndTellsCounts) {
  const auto svg = heat_map_svg(map_of(3));
  EXPECT_EQ(times(svg, "<title>&lt;1&gt; is right in 7 of 9</title>"), 1u);
  EXPECT_EQ(times(svg, "<title>&lt;2&gt; is taken for &lt;0&gt; in 2 of 9</title>"), 1u);
  EXPECT_EQ(times(svg, "class=\"c0 o7\""), 3u);
  EXPECT_EQ(times(svg, "class=\"c5 o4\""), 3u);
  EXPECT_EQ(times(svg, ">7</text>"), 3u);
  EXPECT_EQ(times(svg, ">&lt;1&gt;</text>"), 2u);  // the row's and the column's
}

TEST(HeatMap, LeavesOutWhatDoesNotFit) {
  const auto svg = heat_map_svg(map_of(64));
  EXPECT_EQ(times(svg, "<title>&lt;63&gt; is right in 7 of 9</title>"), 1u);
  EXPECT_EQ(times(svg, ">7</text>"), 0u);
  EXPECT_EQ(times(svg, ">&lt;63&gt;</text>"), 0u);
}

TEST(Base64, IsThatOfTheRfc) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"", ""},
                                                                  {"f", "Zg=="},
                                                                  {"fo", "Zm8="},
                                                                  {"foo", "Zm9v"},
                                                                  {"foob", "Zm9vYg=="},
                                                                  {"fooba", "Zm9vYmE="},
                                                                  {"foobar", "Zm9vYmFy"},
                                                                  {"\xFF\xFE", "//4="}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(detail::base64(bytes), text);
}

TEST(Report, ShowsPicturesWithTheirText) {
  RunReport page;
  page.galleries = {{.title = "Worst", .pictures = {{"foo", {"cat taken for dog", "a<b.png"}}}}};
  const auto html = render_report(page);
  EXPECT_EQ(times(html, "<h2>Worst</h2>"), 1u);
  EXPECT_EQ(times(html, "src=\"data:image/png;base64,Zm9v\""), 1u);
  EXPECT_EQ(times(html, "<div>cat taken for dog</div><div>a&lt;b.png</div>"), 1u);
}

}  // namespace
}  // namespace tandem::report
