#include "tandem/report/report.h"

#include <algorithm>
#include <map>
#include <set>

#include "tandem/base/format.h"
#include "tandem/report/detail/base64.h"
#include "tandem/report/detail/svg.h"

namespace tandem::report {
namespace {

constexpr std::string_view kPageStyle = R"(
:root{color-scheme:light dark;--page:#f5f6f8;--surface:#ffffff;--ink:#1b1f27;--soft:#5b6270;--rule:#e3e6eb}
@media (prefers-color-scheme:dark){:root{--page:#0d1015;--surface:#151920;--ink:#eceff4;--soft:#a3abb8;--rule:#2a303a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1000px;margin:0 auto;padding:36px 20px 56px}
h1{font-size:26px;line-height:1.25;margin:0;letter-spacing:-.01em}
h2{font-size:17px;margin:36px 0 12px}
p.lead{color:var(--soft);margin:6px 0 0}
.cards{display:flex;flex-wrap:wrap;gap:12px;margin-top:24px}
.card{flex:1 1 130px;background:var(--surface);border:1px solid var(--rule);border-radius:10px;padding:14px 18px}
.card b{display:block;font-size:25px;font-weight:650;line-height:1.2;font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px}
.panel{background:var(--surface);border:1px solid var(--rule);border-radius:10px;padding:14px;overflow-x:auto}
.curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(400px,100%),1fr));gap:12px}
svg{display:block;width:100%;height:auto}
.map svg{width:auto;max-width:100%}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:2px 8px 8px}
th,td{padding:5px 8px;text-align:right;border-top:1px solid var(--rule);white-space:nowrap}
tbody:first-child tr:first-child td{border-top:0}
thead th{border-top:0;color:var(--soft);font-weight:500}
th:first-child,td:first-child{text-align:left}
.panel+.panel{margin-top:12px}
summary{cursor:pointer;color:var(--soft)}
.settings td{text-align:left;white-space:normal;overflow-wrap:anywhere}
.settings td:first-child{color:var(--soft);width:34%}
.gallery{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:12px}
figure{margin:0;background:var(--surface);border:1px solid var(--rule);border-radius:10px;padding:10px;overflow:hidden}
figure img{width:100%;aspect-ratio:1;object-fit:contain;image-rendering:pixelated;background:var(--page)}
figcaption{font-size:12.5px;color:var(--soft);overflow-wrap:anywhere;margin-top:6px}
figcaption div:first-child{color:var(--ink);font-weight:600}
p.note{color:var(--soft);font-size:13px;margin:8px 0 16px}
.narrow{display:none}
@media (max-width:640px){
.wide{display:none}
.narrow{display:block}
.ranks,.ranks caption,.ranks tbody,.ranks tr{display:block}
.ranks thead{display:none}
.ranks tr{border-top:1px solid var(--rule);padding:5px 0}
.ranks td{display:flex;justify-content:space-between;border-top:0;padding:1px 8px}
.ranks td::before{content:attr(data-label);color:var(--soft)}
.ranks td:first-child{font-weight:600}
.settings td:first-child{width:46%}
}
@media print{body{background:#fff}main{max-width:none;padding:0}.card,.panel{break-inside:avoid}h2{break-after:avoid}}
)";

std::string cell(std::string_view tag, std::string_view text) {
  std::string out = "<";
  return out.append(tag).append(">").append(detail::escape_markup(text)).append("</").append(tag).append(">");
}

using Cells = std::vector<std::string>;

/// Each cell names its column, because on a narrow screen a row becomes a list.
std::string row(const Cells& head, const Cells& cells) {
  std::string out = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    out.append("<td data-label=\"").append(detail::escape_markup(head.at(i))).append("\">");
    out.append(detail::escape_markup(cells[i])).append("</td>");
  }
  return out + "</tr>\n";
}

std::string table_of_ranks(const std::string& caption, const Cells& head, const std::vector<Cells>& rows) {
  std::string out = "<div class=\"panel\"><table class=\"ranks\">\n" + cell("caption", caption) + "<thead><tr>";
  for (const auto& name : head) out += cell("th", name);
  out += "</tr>\n</thead>\n<tbody>\n";
  for (const auto& cells : rows) out += row(head, cells);
  return out + "</tbody></table></div>\n";
}

std::string summary_part(const RunReport& report) {
  if (report.summary.empty()) return "";
  std::string out = "<div class=\"cards\">\n";
  for (const auto& [name, value] : report.summary) {
    out.append("<div class=\"card\">").append(cell("b", value)).append(cell("span", name)).append("</div>\n");
  }
  return out + "</div>\n";
}

std::string curves_part(const RunReport& report) {
  if (report.curves.empty()) return "";
  std::string out = "<h2>Curves</h2>\n<div class=\"curves\">\n";
  for (const auto& chart : report.curves) {
    out.append("<div class=\"panel\" style=\"margin:0\">").append(line_chart_svg(chart));
    if (!chart.note.empty()) out.append("<p class=\"note\">" + detail::escape_markup(chart.note) + "</p>");
    out.append("</div>\n");
  }
  return out + "</div>\n";
}

std::string memory_table(const MemoryBars& bars) {
  Cells head(kCategoryNames.begin(), kCategoryNames.end());
  head.insert(head.begin(), "rank");
  head.emplace_back("peak");
  if (!bars.predicted.empty()) head.emplace_back("predicted");
  std::vector<Cells> rows;
  for (size_t rank = 0; rank < bars.ranks.size(); ++rank) {
    auto& cells = rows.emplace_back(1, std::to_string(rank));
    for (const auto bytes : bars.ranks[rank]) cells.push_back(format_bytes(bytes));
    cells.push_back(format_bytes(total_of(bars.ranks[rank])));
    if (rank < bars.predicted.size())
      cells.push_back(format_bytes(bars.predicted[rank]));
    else if (!bars.predicted.empty())
      cells.emplace_back();
  }
  return table_of_ranks(bars.form, head, rows);
}

std::string steps_part(const RunReport& report) {
  std::string out;
  for (const auto& chart : report.steps) {
    out.append(out.empty() ? "<h2>A step of all ranks</h2>\n" : "").append("<div class=\"panel\">");
    out.append(step_chart_svg(chart, /*stand_alone=*/false)).append("</div>\n");
    if (!chart.note.empty()) out.append("<p class=\"note\">" + detail::escape_markup(chart.note) + "</p>\n");
  }
  return out;
}

std::string over_time_part(const RunReport& report) {
  if (report.over_time.empty()) return "";
  MemoryCurveFigure figure{.stand_alone = false};
  for (const auto& curve : report.over_time) {
    figure.reach = std::max(figure.reach, peak_of(curve));
    if (!curve.seconds.empty()) figure.duration = std::max(figure.duration, curve.seconds.back());
  }
  std::string out = "<h2>Over one step</h2>\n";
  for (const auto& curve : report.over_time) {
    out.append("<div class=\"panel\">").append(memory_curve_svg(curve, figure)).append("</div>\n");
  }
  return out;
}

std::string maps_part(const RunReport& report) {
  std::string out;
  for (const auto& map : report.maps) out += "<div class=\"panel map\">" + heat_map_svg(map, false) + "</div>\n";
  return out.empty() ? "" : "<h2>What is taken for what</h2>\n" + out;
}

std::string picture_part(const Picture& picture) {
  std::string out =
      "<figure><img alt=\"\" src=\"data:image/png;base64," + detail::base64(picture.png) + "\"><figcaption>";
  for (const auto& line : picture.text) out += cell("div", line);
  return out + "</figcaption></figure>\n";
}

std::string galleries_part(const RunReport& report) {
  std::string out;
  for (const auto& gallery : report.galleries) {
    out += cell("h2", gallery.title) + "\n<div class=\"gallery\">\n";
    for (const auto& picture : gallery.pictures) out += picture_part(picture);
    out += "</div>\n";
  }
  return out;
}

std::string tables_part(const RunReport& report) {
  std::string out;
  for (const auto& table : report.tables) out += table_of_ranks(table.caption, table.head, table.rows);
  return out;
}

std::string memory_part(const RunReport& report) {
  if (report.memory.empty()) return "";
  std::string out = "<h2>Memory</h2>\n<div class=\"panel\">";
  out.append("<div class=\"wide\">").append(memory_figure_svg(report.memory, {.stand_alone = false})).append("</div>");
  out.append("<div class=\"narrow\">");
  for (const auto& bars : report.memory)
    out += memory_figure_svg({&bars, 1}, {.stand_alone = false, .width = 460, .reach = highest_peak(report.memory)});
  out += "</div></div>\n";
  if (!report.memory_note.empty())
    out.append("<p class=\"note\">").append(detail::escape_markup(report.memory_note)).append("</p>\n");
  for (const auto& bars : report.memory) out += memory_table(bars);
  return out;
}

/// One row per rank, one column per operation.
std::string wire_part(const RunReport& report) {
  if (report.wire.empty()) return "";
  std::map<int, std::map<std::string, std::pair<int64_t, int64_t>>> of_rank;
  std::set<std::string> operations;
  for (const auto& [rank, operation, calls, bytes] : report.wire) {
    auto& sum = of_rank[rank][operation];
    sum.first += calls;
    sum.second += bytes;
    operations.insert(operation);
  }
  Cells head = {"rank"};
  head.insert(head.end(), operations.begin(), operations.end());
  head.emplace_back("bytes");
  std::vector<Cells> rows;
  for (const auto& [rank, of_operation] : of_rank) {
    auto& cells = rows.emplace_back(1, std::to_string(rank));
    int64_t total = 0;
    for (const auto& operation : operations) {
      const auto found = of_operation.find(operation);
      const auto [calls, bytes] = found == of_operation.end() ? std::pair<int64_t, int64_t>() : found->second;
      cells.push_back(calls == 0 ? "–" : format_bytes(bytes) + " in " + format_count(calls));
      total += bytes;
    }
    cells.push_back(format_bytes(total));
  }
  return "<h2>Wire</h2>\n" + table_of_ranks("Payload and calls per rank and operation", head, rows);
}

std::string settings_table(const std::vector<std::pair<std::string, std::string>>& settings) {
  std::string out = "<table class=\"settings\">\n<tbody>\n";
  for (const auto& [name, value] : settings)
    out.append("<tr>").append(cell("td", name)).append(cell("td", value)).append("</tr>\n");
  return out + "</tbody></table>";
}

std::string settings_part(const RunReport& report) {
  std::string out;
  if (!report.settings.empty()) out += "<div class=\"panel\">" + settings_table(report.settings) + "</div>\n";
  for (const auto& [title, settings] : report.folded_settings) {
    if (settings.empty()) continue;
    out += "<details class=\"panel\">" + cell("summary", title) + settings_table(settings) + "</details>\n";
  }
  return out.empty() ? "" : "<h2>Settings</h2>\n" + out;
}

}  // namespace

std::string render_report(const RunReport& report) {
  std::string page = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  page += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
  page.append(cell("title", report.title)).append("\n<style>").append(kPageStyle).append(detail::chart_style());
  page.append("</style>\n</head>\n<body>\n<main>\n").append(cell("h1", report.title)).append("\n");
  if (!report.subtitle.empty())
    page.append("<p class=\"lead\">").append(detail::escape_markup(report.subtitle)).append("</p>\n");
  page.append(summary_part(report))
      .append(curves_part(report))
      .append(steps_part(report))
      .append(over_time_part(report));
  page.append(maps_part(report)).append(galleries_part(report));
  page.append(memory_part(report)).append(tables_part(report)).append(wire_part(report)).append(settings_part(report));
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace tandem::report
