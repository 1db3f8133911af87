#include "tandem/cli/run/answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/format.h"
#include "tandem/base/table.h"
#include "tandem/data/png_encoder.h"
#include "tandem/report/heat_map.h"

namespace tandem::cli {
namespace {

constexpr int64_t kWorst = 24;     // images that are kept
constexpr size_t kConfused = 100;  // pairs in the JSON
constexpr size_t kLines = 3;       // of each kind in the text
constexpr size_t kWeakest = 5;     // classes in the text
constexpr size_t kRows = 200;      // classes on the page

double share_of(const evaluation::ClassCount& one) {
  return static_cast<double>(one.right) / static_cast<double>(one.count);
}

std::string weakest_text(const TestAnswers& answers) {
  auto classes = answers.confusion.classes;
  std::erase_if(classes, [](const auto& one) { return one.right == one.count; });
  std::ranges::stable_sort(classes, {}, share_of);
  Table table({"weakest classes", "right", "of", "share"});
  for (const auto& one : std::span(classes).first(std::min(classes.size(), kWeakest))) {
    table.add_row(
        {answers.names(one.label), format_count(one.right), format_count(one.count), format_percent(share_of(one))});
  }
  return table.str();
}

report::ReportTable table_of(const TestAnswers& answers) {
  auto classes = answers.confusion.classes;
  std::ranges::stable_sort(classes, {}, share_of);
  report::ReportTable table{
      .caption = "Classes, the weakest first", .head = {"class", "right", "of", "share"}, .rows = {}};
  for (const auto& one : std::span(classes).first(std::min(classes.size(), kRows))) {
    table.rows.push_back(
        {answers.names(one.label), format_count(one.right), format_count(one.count), format_percent(share_of(one))});
  }
  return table;
}

report::HeatMap map_of(const TestAnswers& answers) {
  report::HeatMap map{.title = "Images by class and answer",
                      .names = answers.names.all(),
                      .counts = {},
                      .row_label = "class",
                      .column_label = "taken for"};
  const auto& matrix = answers.confusion.matrix;
  for (int64_t label = 0; label < matrix.size(0); ++label) {
    const auto* row = matrix.const_data_ptr<int64_t>() + label * matrix.size(1);
    map.counts.emplace_back(row, row + matrix.size(1));
  }
  return map;
}

report::Gallery worst_of(const TestAnswers& answers, const data::Dataset& images) {
  report::Gallery gallery{.title = "Wrong answers, the surest first", .pictures = {}};
  const auto shape = images.image_shape();
  std::vector<uint8_t> pixels(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
  for (const auto& one : answers.worst) {
    images.read(one.index, pixels);
    gallery.pictures.push_back({data::encode_png(pixels, shape),
                                {one.name + " taken for " + one.taken_for, format_percent(one.score), one.image}});
  }
  return gallery;
}

}  // namespace

TestAnswers answers_of(const job::ImageAnswers& answers, const data::Dataset& images, const ClassNames& names) {
  const auto labels = answers.labels(), best = answers.best().classes.select(1, 0);
  const auto scores = answers.best().scores.select(1, 0).contiguous();
  TestAnswers found{.confusion = evaluation::confusion_of(labels, best, names.count()), .names = names};
  for (const auto index : evaluation::worst_of(labels, best, scores, kWorst)) {
    found.worst.push_back({.index = index,
                           .image = images.sample_name(index),
                           .name = names(labels[index].item<int64_t>()),
                           .taken_for = names(best[index].item<int64_t>()),
                           .score = scores[index].item<double>()});
  }
  return found;
}

nlohmann::json classes_json(const TestAnswers& answers) {
  auto list = nlohmann::json::array();
  for (const auto& [label, right, count] : answers.confusion.classes) {
    list.push_back({{"name", answers.names(label)}, {"right", right}, {"count", count}});
  }
  return list;
}

nlohmann::json confusion_json(const TestAnswers& answers) {
  const auto& matrix = answers.confusion.matrix;
  if (!matrix.defined()) return nullptr;
  auto rows = nlohmann::json::array();
  for (int64_t label = 0; label < matrix.size(0); ++label) {
    const auto* row = matrix.const_data_ptr<int64_t>() + label * matrix.size(1);
    rows.push_back(std::vector<int64_t>(row, row + matrix.size(1)));
  }
  return rows;
}

nlohmann::json confused_json(const TestAnswers& answers) {
  auto list = nlohmann::json::array();
  for (const auto& [label, taken_for, count] : answers.confusion.pairs) {
    if (list.size() == kConfused) break;
    list.push_back({{"name", answers.names(label)}, {"taken_for", answers.names(taken_for)}, {"count", count}});
  }
  return list;
}

nlohmann::json worst_json(const TestAnswers& answers) {
  auto list = nlohmann::json::array();
  for (const auto& one : answers.worst) {
    list.push_back({{"path", one.image}, {"name", one.name}, {"taken_for", one.taken_for}, {"score", one.score}});
  }
  return list;
}

std::string answers_text(const TestAnswers& answers) {
  if (answers.worst.empty()) return "";
  auto text = weakest_text(answers);
  const auto& pairs = answers.confusion.pairs;
  for (const auto& [label, taken_for, count] : std::span(pairs).first(std::min(pairs.size(), kLines))) {
    text += "confused " + answers.names(label) + " is taken for " + answers.names(taken_for) + " in " +
            format_count(count) + (count == 1 ? " image\n" : " images\n");
  }
  for (const auto& one : std::span(answers.worst).first(std::min(answers.worst.size(), kLines))) {
    text += "worst    " + one.image + ": " + one.name + " is taken for " + one.taken_for + ", score " +
            format_percent(one.score) + "\n";
  }
  return text;
}

void add_answers(report::RunReport& page, const TestAnswers& answers, const data::Dataset& images) {
  if (answers.confusion.matrix.defined()) page.maps.push_back(map_of(answers));
  if (!answers.worst.empty()) page.galleries.push_back(worst_of(answers, images));
  page.tables.push_back(table_of(answers));
}

}  // namespace tandem::cli
