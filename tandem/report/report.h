#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tandem/report/chart.h"

namespace tandem::report {

/// Payload that one rank sent or received with one operation.
struct WireRow {
  int rank = 0;
  std::string operation;
  int64_t calls = 0, bytes = 0;
};

/// What a run has to show. Texts are shown as they are given, escaped; empty parts are left out of the page.
struct RunReport {
  std::string title;                                         // "glyphs, 3,755 classes over 4 ranks"
  std::string subtitle;                                      // one line below it
  std::vector<std::pair<std::string, std::string>> summary;  // {"top-1", "98.9 %"}: shown large
  std::vector<LineChart> curves;
  std::vector<MemoryBars> memory;  // side by side; the first is this run's
  std::string memory_note;         // a line on how it was measured
  std::vector<WireRow> wire;
  std::vector<std::pair<std::string, std::string>> settings;
};

/// One HTML page without script and without anything from outside.
std::string render_report(const RunReport& report);

}  // namespace tandem::report
