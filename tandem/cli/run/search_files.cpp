#include "tandem/cli/run/search_files.h"

#include <ATen/ATen.h>

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

report::CellDrawing drawing_of(const std::string& kind, const models::CellGenotype& cell) {
  report::CellDrawing drawing{.title = kind, .inputs = {"cell k-2", "cell k-1"}};
  for (const auto& node : cell.nodes) {
    auto& edges = drawing.nodes.emplace_back();
    for (const auto& [operation, input] : node) edges.push_back({operation, static_cast<size_t>(input)});
  }
  for (const auto value : cell.concat) drawing.outputs.push_back(static_cast<size_t>(value));
  return drawing;
}

report::SearchFrame frame_of(const std::string& line) {
  const auto record = nlohmann::json::parse(line);
  const auto genotype = models::parse_genotype(record.at("genotype").get<std::string>(), kAlphasFile);
  return {.step = record.at("step"),
          .accuracy = record.at("top1"),
          .cells = {drawing_of("normal", genotype.normal), drawing_of("reduce", genotype.reduce)},
          .shares = {record.at("normal"), record.at("reduce")}};
}

/// The lines of tests up to a step; a line that is none ends them.
std::string lines_until(const fs::path& file, int64_t step) {
  std::ifstream in(file);
  std::string lines;
  for (std::string line; std::getline(in, line);) {
    try {
      if (frame_of(line).step > step) break;
    } catch (const std::exception&) {
      break;
    }
    lines += line + "\n";
  }
  return lines;
}

/// "0 → 2" of each edge: values 0 and 1 are the inputs.
std::vector<std::string> edge_names(const models::Space& space) {
  std::vector<std::string> names;
  for (int64_t node = 0; node < space.nodes; ++node) {
    const int64_t value = models::kCellInputs + node;
    for (int64_t input = 0; input < value; ++input) {
      names.push_back(std::to_string(input) + " → " + std::to_string(value));
    }
  }
  return names;
}

/// Of the lines that this program has written.
report::SearchPage page_of(const fs::path& folder, const models::Space& space, const std::string& lines) {
  report::SearchPage page{.title = "Search in " + folder.filename().string(),
                          .kinds = {"normal", "reduce"},
                          .edges = edge_names(space),
                          .operations = {}};
  for (const auto* cell : {&space.normal, &space.reduce}) {
    page.operations.emplace_back(cell->edges.front().begin(), cell->edges.front().end());
  }
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) page.frames.push_back(frame_of(line));
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
      lines_(lines_until(folder / kAlphasFile, first_step)) {}

void SearchFiles::on_step(int64_t step, int64_t epoch, double lr, std::optional<double> loss) {
  inner_.on_step(step, epoch, lr, loss);
}

void SearchFiles::on_scores(int64_t step, const train::Scores& scores) {
  inner_.on_scores(step, scores);
  const auto shares = step_.shares();
  const auto genotype = step_.genotype();
  const auto text = models::to_text(genotype);
  const nlohmann::json record = {{"step", step},
                                 {"normal", rows_of(shares[0])},
                                 {"reduce", rows_of(shares[1])},
                                 {"top1", scores.value("top1")},
                                 {"genotype", text}};
  lines_ += record.dump() + "\n";
  log::info("search   step " + format_count(step) + ", " + std::to_string(models::skips_of(genotype.normal)) + " + " +
            std::to_string(models::skips_of(genotype.reduce)) + " skips: " + text);
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
  write_run_file(folder_ / kGenotypeFile, models::to_text(step_.genotype(takes_best_)) + "\n");
}

}  // namespace tandem::cli
