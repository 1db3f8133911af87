#include "tandem/cli/run/search_files.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/models/space.h"
#include "tandem/report/cell_drawing.h"
#include "tandem/report/search_page.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kAlphasFile = "alphas.jsonl", *kGenotypeFile = "genotype.txt", *kPage = "search.html";

nlohmann::json rows_of(const Tensor& shares) {
  const auto values = shares.to(at::kCPU, at::kDouble).contiguous();
  auto rows = nlohmann::json::array();
  for (int64_t i = 0; i < values.size(0); ++i) {
    const double* first = values.const_data_ptr<double>() + i * values.size(1);
    rows.push_back(std::vector(first, first + values.size(1)));
  }
  return rows;
}

/// The values that a cell takes are the outputs of those before it, the latest last.
report::CellDrawing drawing_of(const models::Space& space, size_t kind, const models::CellGenotype& cell) {
  report::CellDrawing drawing{.title = std::string(space.cells[kind].kind)};
  for (int64_t i = space.inputs(); i > 0; --i) drawing.inputs.push_back("cell k-" + std::to_string(i));
  for (const auto& node : cell.nodes) {
    auto& edges = drawing.nodes.emplace_back();
    for (const auto& [operation, input] : node) edges.push_back({operation, static_cast<size_t>(input)});
  }
  for (const auto value : cell.concat) drawing.outputs.push_back(static_cast<size_t>(value));
  return drawing;
}

/// The operations that some edge of a kind has.
std::vector<std::string> operations_of(const models::CellSpace& cell) {
  std::vector<std::string> names;
  for (const auto name : models::operation_names()) {
    const auto has = [&](const auto& edge) { return std::ranges::find(edge, name) != edge.end(); };
    if (std::ranges::any_of(cell.edges, has)) names.emplace_back(name);
  }
  return names;
}

/// [edges][operations_of(cell)], of [edges][operations of the edge]; what an edge does not have has the share 0.
std::vector<std::vector<double>> by_operation(const models::CellSpace& cell,
                                              const std::vector<std::vector<double>>& shares) {
  const auto names = operations_of(cell);
  std::vector<std::vector<double>> rows(shares.size(), std::vector<double>(names.size()));
  for (size_t edge = 0; edge < shares.size(); ++edge) {
    for (size_t i = 0; i < shares[edge].size(); ++i) {
      const auto place = std::ranges::find(names, cell.edges.at(edge).at(i)) - names.begin();
      rows[edge][static_cast<size_t>(place)] = shares[edge][i];
    }
  }
  return rows;
}

report::SearchFrame frame_of(const models::Space& space, const std::string& line) {
  const auto record = nlohmann::json::parse(line);
  const auto cells = space.skeleton->parse(record.at("genotype").get<std::string>(), kAlphasFile);
  report::SearchFrame frame{.step = record.at("step"), .accuracy = record.at("top1")};
  for (size_t i = 0; i < space.cells.size(); ++i) {
    frame.cells.push_back(drawing_of(space, i, cells.at(i)));
    frame.shares.push_back(by_operation(space.cells[i], record.at(std::string(space.cells[i].kind))));
  }
  return frame;
}

/// The lines of tests up to a step; a line that is none ends them.
std::string lines_until(const models::Space& space, const fs::path& file, int64_t step) {
  std::ifstream in(file);
  std::string lines;
  for (std::string line; std::getline(in, line);) {
    try {
      if (frame_of(space, line).step > step) break;
    } catch (const std::exception&) {
      break;
    }
    lines += line + "\n";
  }
  return lines;
}

/// "0 → 2" of each edge: the first values are the inputs.
std::vector<std::string> edge_names(const models::Space& space) {
  std::vector<std::string> names;
  for (int64_t node = 0; node < space.nodes; ++node) {
    const int64_t value = space.inputs() + node;
    for (int64_t input = 0; input < value; ++input) {
      names.push_back(std::to_string(input) + " → " + std::to_string(value));
    }
  }
  return names;
}

/// Of the lines that this program has written.
report::SearchPage page_of(const fs::path& folder, const models::Space& space, const std::string& lines) {
  report::SearchPage page{.title = "Search in " + folder.filename().string(), .edges = edge_names(space)};
  for (const auto& cell : space.cells) {
    page.kinds.emplace_back(cell.kind);
    page.operations.push_back(operations_of(cell));
  }
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) page.frames.push_back(frame_of(space, line));
  return page;
}

}  // namespace

SearchFiles::SearchFiles(const fs::path& folder, const search::SearchStep& step, bool takes_best, int64_t first_step,
                         train::Observer& inner, FolderLock& lock)
    : folder_(folder),
      step_(step),
      takes_best_(takes_best),
      inner_(inner),
      lock_(lock),
      lines_(lines_until(step.space(), folder / kAlphasFile, first_step)) {}

void SearchFiles::on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) {
  inner_.on_step(step, epoch, lr, loss);
}

void SearchFiles::on_scores(int64_t step, const train::Scores& scores) {
  inner_.on_scores(step, scores);
  const auto& kinds = step_.space().cells;
  const auto shares = step_.shares();
  const auto cells = step_.cells();
  const auto text = step_.genotype();
  nlohmann::json record = {{"step", step}, {"genotype", text}};
  for (const auto& score : scores.list) record[score.name] = score.value;
  std::string skips;
  for (size_t i = 0; i < kinds.size(); ++i) {
    record[std::string(kinds[i].kind)] = rows_of(shares[i]);
    skips += (i > 0 ? " + " : "") + std::to_string(models::skips_of(cells[i]));
  }
  lines_ += record.dump() + "\n";
  log::info("search   step " + format_count(step) + ", " + skips + " skips: " + text);
  if (step_.guard_step() == step) {
    log::warn("search   the validation loss's curvature has risen: the alphas go back to those of " +
              std::to_string(search::GuardOptions().distance) + " tests ago and stay");
  }
  write();
}

void SearchFiles::on_evaluation(int64_t done, int64_t total) { inner_.on_evaluation(done, total); }
void SearchFiles::on_checkpoint(int64_t step, const fs::path& path) { inner_.on_checkpoint(step, path); }
void SearchFiles::on_best(const train::BestTest& best, const fs::path& path) { inner_.on_best(best, path); }
void SearchFiles::on_skipped_step(int64_t step, const std::string& fault) { inner_.on_skipped_step(step, fault); }

void SearchFiles::write() {
  lock_.keep();
  write_run_file(folder_ / kAlphasFile, lines_);
  const auto page = page_of(folder_, step_.space(), lines_);
  write_run_file(folder_ / kPage, report::render_search_page(page));
  for (const auto& cell : page.frames.back().cells) write_run_file(folder_ / (cell.title + ".svg"), cell_svg(cell));
  write_run_file(folder_ / kGenotypeFile, step_.genotype(takes_best_) + "\n");
}

}  // namespace tandem::cli
