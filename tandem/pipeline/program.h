#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tandem/pipeline/action.h"

namespace tandem::pipeline {

/// In the order of the model: of the rank, those of the stages whose ranks `rank_of` has.
std::vector<int> stages_of(const std::vector<int>& rank_of, int rank);

/// A step of a pipeline as data: what each rank does, in its order. A rank may hold several stages.
///
///   rank 0   0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1
///   rank 1   1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1
///
/// A send never waits, a receive waits for its message, and each message is known by its stage, its direction and its
/// micro-batch. Between two stages of one rank nothing is sent.
struct Program {
  int micro_batches = 0;
  std::vector<int> rank_of;                // of each stage, in the order of the model
  std::vector<std::vector<Action>> lists;  // of each rank
  std::vector<std::string> places = {};    // of the lists, as errors name them; empty: "rank 0", ...

  int num_ranks() const { return static_cast<int>(lists.size()); }
  int num_stages() const { return static_cast<int>(rank_of.size()); }
  std::string place_of(int rank) const;
  std::vector<int> stages_of(int rank) const { return pipeline::stages_of(rank_of, rank); }

  bool has_backward() const;

  /// The classes of the classifier are divided over all ranks.
  bool divides_head() const;
  int home() const { return rank_of.back(); }  // the rank with the last stage
};

/// The receives that meet a send, or the sends that a receive waits for: one between two stages; between the home and
/// the other parts of a divided classifier, one of each part or of the home.
std::vector<Action> partners_of(const Program& program, const Action& message);

/// The same with each message in its place: sent as soon as it is there, and received when it is used. The program
/// must have none, but What::receive_scores, which may stand earlier than where it is used.
Program with_messages(Program program);

/// One line a rank, as torch.distributed.pipelining's CSV files have them: actions with commas between them. Empty
/// fields, as torch writes where a rank idles, empty lines and lines that begin with # are left out. A rank holds the
/// stages whose forwards are in its line. Where a program has no messages, with_messages() adds them. `name`: of the
/// file, for errors. Throws SettingsError, naming the line: a word that is no action; a stage on two ranks, or on none.
Program parse_program(std::string_view text, const std::string& name);

/// What parse_program() reads.
std::string text_of(const Program& program);

}  // namespace tandem::pipeline
