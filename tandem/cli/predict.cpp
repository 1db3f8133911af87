#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/table.h"
#include "tandem/cli/result.h"
#include "tandem/cli/use.h"
#include "tandem/data/image_list.h"
#include "tandem/job/image_answers.h"
#include "tandem/job/odd_images.h"
#include "tandem/job/ranks.h"
#include "tandem/memory/meter.h"

namespace tandem::cli {
namespace {

constexpr int64_t kUsualTop = 5;

const std::vector<settings::Setting>& predict_settings() {
  static const auto rows = use_settings(false, {{"top", kUsualTop, "classes an image, the best ones", {1, 1000}}});
  return rows;
}

/// The predictions of all images, on rank 0.
class Predictions {
 public:
  Predictions(const data::Dataset& images, const ClassNames& names, const Ranking& best)
      : images_(images), names_(names), classes_(best.classes.contiguous()), scores_(best.scores.contiguous()) {}

  int64_t count() const { return classes_.size(0); }
  int64_t top() const { return classes_.size(1); }
  std::string path(int64_t image) const { return images_.sample_name(image); }
  std::string name(int64_t image, int64_t place) const {
    return names_(classes_.const_data_ptr<int64_t>()[image * top() + place]);
  }
  double score(int64_t image, int64_t place) const { return scores_.const_data_ptr<float>()[image * top() + place]; }

 private:
  const data::Dataset& images_;
  const ClassNames& names_;
  Tensor classes_, scores_;
};

nlohmann::json json_of(const Predictions& all) {
  auto list = nlohmann::json::array();
  for (int64_t image = 0; image < all.count(); ++image) {
    auto classes = nlohmann::json::array();
    for (int64_t place = 0; place < all.top(); ++place) {
      classes.push_back({{"name", all.name(image, place)}, {"score", all.score(image, place)}});
    }
    list.push_back({{"path", all.path(image)}, {"classes", std::move(classes)}});
  }
  return list;
}

std::string table_of(const Predictions& all) {
  std::vector<std::string> head = {"image"};
  for (int64_t place = 0; place < all.top(); ++place) head.push_back(std::to_string(place + 1));
  Table table(head);
  for (int64_t image = 0; image < all.count(); ++image) {
    std::vector<std::string> cells = {all.path(image)};
    for (int64_t place = 0; place < all.top(); ++place) {
      cells.push_back(all.name(image, place) + " " + format_percent(all.score(image, place)));
    }
    table.add_row(cells);
  }
  return table.str();
}

std::string short_score(double score) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", score);
  return text;
}

/// RFC 4180: a row an image and class.
std::string csv_of(const Predictions& all) {
  std::string text = "path,place,name,score\r\n";
  for (int64_t image = 0; image < all.count(); ++image) {
    for (int64_t place = 0; place < all.top(); ++place) {
      text += csv_cell(all.path(image)) + "," + std::to_string(place + 1) + "," + csv_cell(all.name(image, place)) +
              "," + short_score(all.score(image, place)) + "\r\n";
    }
  }
  return text;
}

void predict_rank(const Arguments& arguments, const Use& use, const data::Dataset& images, const ClassNames& names,
                  comm::ProcessGroup& group) {
  const auto& shape = use.model.known().shape;
  const auto opened = open_trained(use.model, use.job, shape, {}, group);
  const auto top = std::min(use.settings.get_int("top"), shape.classes);
  const auto answers = predict(use.job, *opened.task, images, top, *opened.mesh);
  if (const auto line = job::odd_images({&images}, group)) log::warn(*line);
  if (group.rank() != 0) return;
  const Predictions all(images, names, answers.best());
  if (arguments.flag("--csv")) write_rows(arguments, csv_of(all));
  write_result(arguments, table_of(all),
               {{"predictions", json_of(all)}, {"model", opened.from.file}, {"steps", opened.from.step}});
}

}  // namespace

settings::Schema predict_schema() { return predict_settings(); }

int run_predict(const Arguments& arguments) {
  memory::install_meter();
  const auto use = read_use("predict", arguments, predict_settings());
  if (use.paths.empty()) throw UsageError("predict: no image is given, wanted 'tandem predict RUN IMAGE|FOLDER...'");
  const auto images = data::image_list(use.paths, use.model.known().preprocessing.form);
  if (job::prints_for_the_job()) log::info(images->describe());
  const ClassNames names(use.model);
  job::on_ranks(use.job, [&](comm::ProcessGroup& group) { predict_rank(arguments, use, *images, names, group); });
  return 0;
}

}  // namespace tandem::cli
