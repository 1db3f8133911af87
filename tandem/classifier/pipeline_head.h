#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/classifier/class_sharded_head.h"
#include "tandem/classifier/detail/part_loss.h"
#include "tandem/comm/handle.h"
#include "tandem/parallel/mesh.h"

namespace tandem::classifier {

/// A micro-batch, as all ranks that take part in its loss know it.
struct HeadRows {
  Tensor labels;               // [n] int64, of this rank's samples
  std::vector<int64_t> sizes;  // samples of each rank that shares the batch
  double share = 1;            // factor of the loss's gradients
};

/// The loss of a head whose classes are split over the ranks along a pipeline, and along other axes of a mesh, in the
/// passes of one step (part_loss.h). The ranks with the last stage, the homes, have the features; of those with the
/// same features each is the home of a part of the rows, as MeshHead has it.
///
///   home     end_forward ─ send_features ─ scores ──────────── receive_scores ─ send_totals ─ take_gradient, loss
///   others   receive_features ─ scores ─ send_scores ───────── receive_totals
///   all      ... at any time then: class_gradient
///
/// Each method is of one micro-batch. Sends return at once; receives, and what needs others' rows, wait. No rank waits
/// for what it does not need. Throws c10::IndexError for a label that is no class, and c10::DistError as messages do.
/// Bytes a rank sends: a home rows * D of features to each other rank of the head,
/// each rank rows * D to the rows' home, and some numbers a row.
class PipelineHead {
 public:
  /// `head`: of mesh.group(over), with `over` of several ranks along the pipeline. `stage`: the coordinate along the
  /// pipeline of the last stage. `is_imagined`: nothing is sent, and what would be received has no values, to rehearse
  /// a step. Head and mesh must outlive this object. Not collective.
  PipelineHead(const ClassShardedHead& head, parallel::Axes over, int stage, parallel::Mesh& mesh,
               std::vector<HeadRows> micro_batches, bool is_imagined = false);
  ~PipelineHead();

  /// `features` [n, D]: of this rank's samples.
  void end_forward(int i, const Tensor& features);
  std::vector<comm::Handle> send_features(int i);
  void receive_features(int i);
  void scores(int i);
  std::vector<comm::Handle> send_scores(int i);
  void receive_scores(int i);
  std::vector<comm::Handle> send_totals(int i);
  void receive_totals(int i);
  void class_gradient(int i);

  /// After receive_scores(): this rank's term of the mean loss, [], to be summed over the axes of a batch and of the
  /// head; the gradient of its samples' features times the share, [n, D]: collective over the homes with the same
  /// features.
  Tensor loss(int i) const;
  Tensor take_gradient(int i);

 private:
  struct State;
  struct Home {
    int rank;        // of the head
    int batch_rank;  // of those that share the batch
    int part;        // of the rows of the ranks with its features
  };
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  Range rows_of(int i, size_t home) const;  // among those of all homes
  bool is_home() const { return own_home_.has_value(); }
  Tensor own_part(const Tensor& rows) const;
  void take_features(int i);
  Tensor shares(const State& state) const;
  void send(std::vector<Tensor> tensors, int to, int tag, std::vector<comm::Handle>& handles);
  void send_part(PartScores part, int to, int i, std::vector<comm::Handle>& handles);
  Tensor receive(int from, int tag, at::IntArrayRef sizes, at::ScalarType type);
  PartScores receive_part(int from, int i, int64_t rows, Tensor numbers);
  void take_totals(int i);

  const ClassShardedHead& head_;
  comm::ProcessGroup& group_;
  comm::ProcessGroup& alike_;  // the homes with the same features
  std::vector<HeadRows> micro_batches_;
  std::vector<Home> homes_;
  std::optional<size_t> own_home_;
  int parts_;  // of the rows of ranks with the same features
  bool is_imagined_;
  std::map<int, State> states_;
};

}  // namespace tandem::classifier
