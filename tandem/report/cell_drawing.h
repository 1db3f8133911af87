#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::report {

/// A cell of a network: values that it is given, then nodes, each the sum of its edges.
struct CellDrawing {
  struct Edge {
    std::string operation;
    size_t from = 0;  // a value: the inputs first, then the nodes
  };

  std::string title;
  std::vector<std::string> inputs;       // their names
  std::vector<std::vector<Edge>> nodes;  // an edge comes from a value before its node
  std::vector<size_t> outputs;           // values that lie side by side in the output
};

/// An <svg> element for a page that contains cell_style(), or with `stand_alone` a file of its own. Each value is a
/// box, from the upper left to the lower right in their order; a line goes down from a value and right into each node
/// that takes it, with the operation above it.
std::string cell_svg(const CellDrawing& cell, bool stand_alone = true);

/// The style sheet of cells: light, or dark if the reader's system is.
std::string cell_style();

}  // namespace tandem::report
