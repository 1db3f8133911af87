#include "tandem/report/cell_drawing.h"

#include <algorithm>

#include "tandem/report/detail/svg.h"

namespace tandem::report {
namespace {

using detail::escape_markup;

constexpr int kBox = 84, kBoxHeight = 26, kStep = 176, kLine = 22, kGap = 14, kLeft = 12, kTop = 34;

struct Place {
  int x, y, height;

  int bus() const { return x + kBox / 2; }
};

std::string number(int value) { return std::to_string(value); }

void add_box(std::string& svg, const Place& place, const std::string& name, const std::string& kind) {
  svg += "<rect class=\"" + kind + "\" x=\"" + number(place.x) + "\" y=\"" + number(place.y) + "\" width=\"" +
         number(kBox) + "\" height=\"" + number(place.height) + "\" rx=\"5\"/>\n<text class=\"name\" x=\"" +
         number(place.bus()) + "\" y=\"" + number(place.y + place.height / 2 + 4) + "\">" + escape_markup(name) +
         "</text>\n";
}

/// From below a value to the left of a node, at height y.
void add_wire(std::string& svg, const Place& from, const Place& to, int y, const std::string& operation) {
  svg += "<path class=\"wire\" d=\"M" + number(from.bus()) + " " + number(from.y + from.height) + "V" + number(y) +
         "H" + number(to.x) + "\"/>\n";
  if (operation.empty()) return;
  svg += "<text class=\"operation\" x=\"" + number(to.x - 6) + "\" y=\"" + number(y - 4) + "\">" +
         escape_markup(operation) + "</text>\n";
}

int height_of(size_t wires) { return std::max(kBoxHeight, static_cast<int>(wires) * kLine + 6); }

}  // namespace

std::string cell_style() {
  return R"(svg.cell{font:13px system-ui,sans-serif;background:#fff}
.cell rect{fill:#eef2f7;stroke:#5b6b7f}.cell rect.input{fill:#dff0df}.cell rect.output{fill:#fdebd2}
.cell .wire{fill:none;stroke:#7d8b9c}.cell text{fill:#1d2733}.cell .name{text-anchor:middle}
.cell .operation{text-anchor:end;font-size:12px}.cell .title{font-weight:600}
@media(prefers-color-scheme:dark){svg.cell{background:#15191e}.cell rect{fill:#27313c;stroke:#8fa0b3}
.cell rect.input{fill:#23402a}.cell rect.output{fill:#4a3820}.cell text{fill:#e6ebf0}.cell .wire{stroke:#8494a6}}
)";
}

std::string cell_svg(const CellDrawing& cell, bool stand_alone) {
  std::string body =
      "<text class=\"title\" x=\"" + number(kLeft) + "\" y=\"18\">" + escape_markup(cell.title) + "</text>\n";
  std::vector<Place> places;
  int y = kTop;
  const auto put = [&](size_t wires) {
    // The first step is short: no operation stands between the inputs.
    const int before = static_cast<int>(places.size());
    const int inputs = static_cast<int>(cell.inputs.size());
    const int x = kLeft + std::min(before, inputs - 1) * (kBox + kGap) + std::max(0, before - inputs + 1) * kStep;
    places.push_back({x, y, height_of(wires)});
    y += places.back().height + (before + 1 < inputs ? 0 : kGap);
    if (before + 1 < inputs) y = kTop;
    return places.back();
  };
  for (const auto& input : cell.inputs) add_box(body, put(0), input, "input");
  for (size_t node = 0; node < cell.nodes.size(); ++node) {
    const auto& edges = cell.nodes[node];
    const auto place = put(edges.size());
    for (size_t i = 0; i < edges.size(); ++i) {
      add_wire(body, places[edges[i].from], place, place.y + static_cast<int>(i) * kLine + kLine - 4,
               edges[i].operation);
    }
    add_box(body, place, "node " + std::to_string(node), "node");
  }
  const auto output = put(cell.outputs.size());
  for (size_t i = 0; i < cell.outputs.size(); ++i) {
    add_wire(body, places[cell.outputs[i]], output, output.y + static_cast<int>(i) * kLine + kLine - 4, "");
  }
  add_box(body, output, "output", "output");
  const auto width = number(output.x + kBox + kLeft), height = number(output.y + output.height + kGap);
  const std::string head = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"cell\" width=\"" + width +
                           "\" height=\"" + height + "\" viewBox=\"0 0 " + width + " " + height +
                           "\" role=\"img\" aria-label=\"" + escape_markup(cell.title) + "\">\n";
  return head + (stand_alone ? "<style>" + cell_style() + "</style>\n" : "") + body + "</svg>\n";
}

}  // namespace tandem::report
