#include "tandem/report/search_page.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/format.h"
#include "tandem/report/detail/svg.h"

namespace tandem::report {
namespace {

using detail::escape_markup;

constexpr std::string_view kStyle = R"(body{font:15px system-ui,sans-serif;margin:1.5rem;color:#1d2733;background:#fff}
h1{font-size:1.3rem}table{border-collapse:collapse;margin:.5rem 2rem .5rem 0;display:inline-table;vertical-align:top}
caption{text-align:left;font-weight:600;padding:.3rem 0}th{font-weight:400;font-size:.8rem;text-align:left;padding:1px 4px}
thead th{writing-mode:vertical-rl;transform:rotate(180deg)}
td{width:2.4rem;height:1.25rem;font-size:.7rem;text-align:center;border:1px solid #fff}
.frame{display:none}.frame.shown{display:block}.play{display:flex;gap:.8rem;align-items:center}
.play input{flex:1;max-width:40rem}svg{max-width:100%;height:auto}
@media(prefers-color-scheme:dark){body{color:#e6ebf0;background:#15191e}td{border-color:#15191e}}
)";

constexpr std::string_view kScript = R"(
const frames=[...document.querySelectorAll('.frame')],bar=document.querySelector('input'),button=document.querySelector('button');
let timer=null;
function show(i){frames.forEach((f,n)=>f.classList.toggle('shown',n==i));bar.value=i}
function stop(){clearInterval(timer);timer=null;button.textContent='Play'}
bar.oninput=()=>show(+bar.value);
button.onclick=()=>{if(timer)return stop();button.textContent='Stop';let i=+bar.value+1>=frames.length?0:+bar.value;show(i);
timer=setInterval(()=>{if(++i>=frames.length)return stop();show(i)},700)};
)";

/// Between white and a dark blue; text is white where the cell is dark.
std::string colour_of(double share) {
  const double part = std::clamp(std::sqrt(share), 0.0, 1.0);
  const auto mix = [&](double light, double dark) {
    return std::to_string(std::lround(light + (dark - light) * part));
  };
  return "background:rgb(" + mix(240, 20) + "," + mix(245, 74) + "," + mix(250, 140) +
         ");color:" + (part > 0.6 ? "#fff" : "#1d2733");
}

std::string heat_table(const SearchPage& page, const SearchFrame& frame, size_t kind) {
  std::string html = "<table><caption>" + escape_markup(page.kinds[kind]) + "</caption><thead><tr><td></td>";
  for (const auto& operation : page.operations[kind]) html += "<th>" + escape_markup(operation) + "</th>";
  html += "</tr></thead><tbody>\n";
  const auto& shares = frame.shares[kind];
  for (size_t edge = 0; edge < shares.size(); ++edge) {
    html += "<tr><th>" + escape_markup(page.edges[edge]) + "</th>";
    for (const double share : shares[edge]) {
      html += "<td style=\"" + colour_of(share) + "\">" + std::to_string(std::lround(100 * share)) + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string frame_html(const SearchPage& page, const SearchFrame& frame, bool is_shown) {
  std::string html = "<section class=\"frame" + std::string(is_shown ? " shown" : "") + "\"><p>step " +
                     format_count(frame.step) + ", accuracy " + format_percent(frame.accuracy) + "</p>\n";
  for (const auto& cell : frame.cells) html += cell_svg(cell, /*stand_alone=*/false);
  html += "<p>Shares of the operations on each edge, in percent</p>\n";
  for (size_t kind = 0; kind < page.kinds.size(); ++kind) html += heat_table(page, frame, kind);
  return html + "</section>\n";
}

}  // namespace

std::string render_search_page(const SearchPage& page) {
  const auto last = std::to_string(page.frames.empty() ? 0 : page.frames.size() - 1);
  std::string html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
                     escape_markup(page.title) + "</title>\n<style>" + std::string(kStyle) + cell_style() +
                     "</style></head><body>\n<h1>" + escape_markup(page.title) +
                     "</h1>\n<div class=\"play\"><button>Play</button><input type=\"range\" min=\"0\" max=\"" + last +
                     "\" value=\"" + last + "\" aria-label=\"test\"></div>\n";
  for (const auto& frame : page.frames) html += frame_html(page, frame, &frame == &page.frames.back());
  return html + "<script>" + std::string(kScript) + "</script></body></html>\n";
}

}  // namespace tandem::report
