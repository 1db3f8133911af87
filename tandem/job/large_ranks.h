#pragma once
#include <map>
#include <tuple>

#include "tandem/job/class_split.h"
#include "tandem/job/job.h"
#include "tandem/memory/levels.h"

namespace tandem::job {

/// The memory of ranks that are too large to be rehearsed here, in line with rehearsals of smaller jobs of the same
/// settings. Their numbers of images, features and classes are a few each time, and their blocks of classes are those
/// of the large job, so that most bytes are in line exactly. It is taken that all ranks have as many images and classes
/// as the first, and where the line bends, the steeper slope counts: the bytes are seldom too few. Nothing is
/// recomputed. Not collective.
///
///   backbone      a class or two a rank, and images   8 ── 16 ── 24 ───────▶ the job's
///   classifier    with no backbone:  images  16 ── 32, features  4 ── 8 ───▶ the job's
///                 and of these       classes           2C ── 3C ── 4C ─────▶ the rank's    2C: beyond what is kept
///
/// Time: seconds; more classes of a rank cost nothing more.
class LargeRanks {
 public:
  /// The memory meter must be installed.
  LargeRanks(const Job& job, const DataShape& shape);

  /// The levels of a step of a rank with so many classes. A whole head has all classes instead. Throws SettingsError
  /// as train does.
  memory::Levels rank(int rank, int64_t own_classes);
  RankPeak peak(int rank, int64_t own_classes);
  std::vector<RankPeak> peaks(const std::vector<int64_t>& counts);

  /// `levels` of the rank with another head in place of the job's.
  memory::Levels with_head(memory::Levels levels, int rank, const Head& head, int64_t own_classes);

 private:
  struct Size {
    int64_t classes = 0, images = 0, features = 0;  // of a rank; a micro-batch of it; an image, for the head
  };

  memory::Levels rehearse(const Head& head, int rank, Size size, bool has_backbone) const;
  memory::Levels backbone(int rank);
  memory::Levels classifier(const Head& head, int rank, int64_t own_classes);
  int64_t unit_of_classes(const Head& head) const;
  memory::Levels few_classes(const Head& head, int rank, int64_t own_classes);
  memory::Levels all_features(const Head& head, int rank, int64_t own_classes);
  memory::Levels few_features(const Head& head, int rank, int64_t own_classes, int64_t features);
  int like(int rank, const Head& head) const;
  int64_t samples(const Head& head, int64_t images) const;

  Job job_;
  DataShape shape_;
  int workers_;     // ranks or replicas that share a batch
  int64_t images_;  // of a micro-batch
  std::map<int, memory::Levels> backbones_;
  /// By what differs between heads of the job, the rank and its classes.
  std::map<std::tuple<const HeadForm*, int64_t, double, bool, bool, int, int64_t>, memory::Levels> heads_;
};

}  // namespace tandem::job
