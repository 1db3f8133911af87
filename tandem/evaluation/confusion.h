#pragma once
#include <cstdint>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::evaluation {

struct ClassCount {
  int64_t label = 0, right = 0, count = 0;  // samples of the class whose best class is it; all of its samples
};

struct Confused {
  int64_t label = 0, taken_for = 0, count = 0;
};

/// What a classifier takes for what.
struct Confusion {
  std::vector<ClassCount> classes;  // those with samples, by label
  std::vector<Confused> pairs;      // wrong answers, the most frequent first, then by label and answer
  Tensor matrix;                    // [classes, classes] int64, rows are labels; undefined for more than `largest`
};

/// Counts answers. Not collective. Memory: 16 bytes a class and 24 a different wrong answer, and the matrix.
///   labels, answers  [N] int64 on the CPU, 0 .. num_classes - 1
/// Throws c10::ValueError (sizes, numbers out of range).
Confusion confusion_of(const Tensor& labels, const Tensor& answers, int64_t num_classes, int64_t largest = 64);

/// The samples whose answer is wrong, those with the highest score of the wrong answer first, at most `most`: indices.
/// Equal scores: by index.
///   scores  [N] float32
std::vector<int64_t> worst_of(const Tensor& labels, const Tensor& answers, const Tensor& scores, int64_t most);

}  // namespace tandem::evaluation
