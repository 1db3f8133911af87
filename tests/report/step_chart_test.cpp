#include "tandem/report/step_chart.h"

#include <gtest/gtest.h>

#include "tandem/report/report.h"

namespace tandem::report {
namespace {

StepChart chart() {
  using Kind = StepBar::Kind;
  return {
      .title = "The last step",
      .note = "Ranks wait in 25 %.",
      .lanes = {{.name = "rank 0",
                 .bars = {{"F0", Kind::forward, 0, 1}, {"RECV_B0", Kind::waits, 1, 3}, {"B0", Kind::backward, 3, 4}},
                 .bytes = {{1, 2048}, {4, 1024}}},
                {.name = "rank 1", .bars = {{"F<1>", Kind::forward, 1, 2}, {"W0", Kind::weight_gradients, 2, 3}}}}};
}

TEST(StepChart, HasALaneARankOverOneAxis) {
  const auto svg = step_chart_svg(chart());
  for (const auto* part : {"The last step", "rank 0", "rank 1", "F0, 1000.00 ms", "RECV_B0, 2000.00 ms", "to 2 KiB",
                           "F&lt;1&gt;", "weight gradients", "seconds", "<style>"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg.find(">to ", svg.find(">to ") + 1), std::string::npos) << "a lane without bytes has no curve";
}

TEST(StepChart, StandsInAReport) {
  const auto page = render_report({.title = "run", .steps = {chart()}});
  EXPECT_NE(page.find("<h2>A step of all ranks</h2>"), std::string::npos);
  EXPECT_NE(page.find("Ranks wait in 25 %."), std::string::npos);
  EXPECT_EQ(render_report({.title = "run"}).find("A step of all ranks"), std::string::npos);
}

TEST(StepChart, OfNothingIsAPictureToo) { EXPECT_NE(step_chart_svg({.title = "x"}).find("</svg>"), std::string::npos); }

}  // namespace
}  // namespace tandem::report
