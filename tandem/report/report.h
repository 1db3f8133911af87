#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tandem/report/chart.h"
#include "tandem/report/heat_map.h"
#include "tandem/report/memory_curve.h"
#include "tandem/report/step_chart.h"

namespace tandem::report {

/// Payload that one rank sent or received with one operation.
struct WireRow {
  int rank = 0;
  std::string operation;
  int64_t calls = 0, bytes = 0;
};

/// One line a thing, such as a block of the model.
struct ReportTable {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  // as many cells as `head`
};

struct Picture {
  std::string png;                // the bytes of a file
  std::vector<std::string> text;  // lines below it
};

struct Gallery {
  std::string title;
  std::vector<Picture> pictures;
};

/// Settings that are shown when the reader opens them.
struct FoldedSettings {
  std::string title;
  std::vector<std::pair<std::string, std::string>> settings;
};

/// The contents of a run's report. Texts are escaped, and otherwise shown as given; empty parts are left out of the
/// page.
struct RunReport {
  std::string title;                                         // "glyphs, 3,755 classes over 4 ranks"
  std::string subtitle;                                      // one line below it
  std::vector<std::pair<std::string, std::string>> summary;  // {"top-1", "98.9 %"}: shown large
  std::vector<LineChart> curves;
  std::vector<MemoryCurve> over_time;  // one below the other, over the same axes
  std::vector<StepChart> steps;
  std::vector<MemoryBars> memory;  // side by side; the first is this run's
  std::string memory_note;         // one line that says how it was measured
  std::vector<HeatMap> maps;
  std::vector<Gallery> galleries;
  std::vector<ReportTable> tables;
  std::vector<WireRow> wire;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<FoldedSettings> folded_settings;  // below them
};

/// One HTML page, without scripts and without external resources.
std::string render_report(const RunReport& report);

}  // namespace tandem::report
