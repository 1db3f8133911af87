#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/report/cell_drawing.h"

namespace tandem::report {

/// What a search stood at after one of its tests.
struct SearchFrame {
  int64_t step = 0;
  double accuracy = 0;                                   // of the test, 0..1
  std::vector<CellDrawing> cells;                        // one a kind
  std::vector<std::vector<std::vector<double>>> shares;  // [kinds][edges][operations]
};

struct SearchPage {
  std::string title;
  std::vector<std::string> kinds;                    // "normal", "reduce"
  std::vector<std::string> edges;                    // names, from top to bottom
  std::vector<std::vector<std::string>> operations;  // [kinds][operations]
  std::vector<SearchFrame> frames;                   // by step
};

/// An HTML page that plays the frames, with the cells and a heat map of the operations' shares of each; without
/// external resources. Opens at the last frame; without scripts it shows that one.
std::string render_search_page(const SearchPage& page);

}  // namespace tandem::report
