#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::pipeline {

/// What a rank does with one stage of a model and one micro-batch. Backward is one action, or two: the gradient of the
/// stage's input, for which the stage before waits, and, at any later time, those of its weights.
enum class What : uint8_t {
  forward,
  backward,
  input_gradient,
  weight_gradient,
  send_output,       // to the next stage
  receive_input,     // from the stage before
  send_gradient,     // of the stage's input, to the stage before
  receive_gradient,  // of the stage's output, from the next stage

  // Of a classifier whose classes are divided over all ranks, each of which has a part (its number stands for a
  // stage's). The rank with the last stage, where the features are made, is the home of the rows.
  scores,            // of the features by a part's classes, and what they would give to the features' gradient
  class_gradient,    // of a part's weights, at any time after the totals are known
  send_features,     // from the home to all others
  receive_features,  // from the home
  send_scores,       // to the home
  receive_scores,    // from all others: the loss, the features' gradient and the totals are known
  send_totals,       // of the scores over all parts, from the home to all others
  receive_totals     // from the home
};

bool is_send(What what);
bool is_receive(What what);
inline bool is_message(What what) { return is_send(what) || is_receive(what); }

/// Of a classifier that is divided over the ranks.
inline bool is_of_head(What what) { return what >= What::scores; }

/// Backward, or its first half: what gives the gradient of a stage's input.
inline bool begins_backward(What what) { return what == What::backward || what == What::input_gradient; }

struct Action {
  What what = What::forward;
  int stage = 0, micro_batch = 0;

  friend auto operator<=>(const Action&, const Action&) = default;
};

/// The receive that meets a send between two stages, and the other way round.
Action partner_of(const Action& message);

/// Stage, kind and micro-batch, as torch.distributed.pipelining writes them: "0F3" forward, "0B3" backward, "0I3" and
/// "0W3" its halves, "0SEND_F3" and "1RECV_F3" an output on its way, "1SEND_B3" and "0RECV_B3" a gradient. Of a divided
/// classifier: "2S3" scores and "2T3" the class gradient, of part 2; SEND_X and RECV_X features, SEND_S and RECV_S
/// scores, SEND_T and RECV_T totals.
std::string text_of(const Action& action);

/// nullopt: it is none.
std::optional<Action> parse_action(std::string_view text);

}  // namespace tandem::pipeline
