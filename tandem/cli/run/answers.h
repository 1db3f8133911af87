#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/cli/use.h"
#include "tandem/evaluation/confusion.h"
#include "tandem/job/image_answers.h"
#include "tandem/report/report.h"

// What a test found, class by class and image by image, as results show it.
namespace tandem::cli {

struct WrongImage {
  int64_t index = 0;  // in the test set
  std::string image, name, taken_for;
  double score = 0;  // of the wrong class
};

struct TestAnswers {
  evaluation::Confusion confusion;
  std::vector<WrongImage> worst;  // the surest first
  ClassNames names;
};

/// Of rank 0. `images`: the test set.
TestAnswers answers_of(const job::ImageAnswers& answers, const data::Dataset& images, const ClassNames& names);

/// [{"name", "right", "count"}] of the classes with images.
nlohmann::json classes_json(const TestAnswers& answers);

/// Rows of counts, a row a class of the model and a column an answer; null for many classes.
nlohmann::json confusion_json(const TestAnswers& answers);

/// [{"name", "taken_for", "count"}], the most frequent first.
nlohmann::json confused_json(const TestAnswers& answers);

/// [{"path", "name", "taken_for", "score"}].
nlohmann::json worst_json(const TestAnswers& answers);

/// The weakest classes, the most frequent confusions and the worst images, a few lines each; "" if all is right.
std::string answers_text(const TestAnswers& answers);

/// What a page shows of them: the classes, what is taken for what, the worst images.
void add_answers(report::RunReport& page, const TestAnswers& answers, const data::Dataset& images);

}  // namespace tandem::cli
