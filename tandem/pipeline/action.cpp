#include "tandem/pipeline/action.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tandem::pipeline {
namespace {

constexpr std::array<std::string_view, 16> kKinds = {"F",      "B",      "I",      "W",     "SEND_F", "RECV_F",
                                                     "SEND_B", "RECV_B", "S",      "T",     "SEND_X", "RECV_X",
                                                     "SEND_S", "RECV_S", "SEND_T", "RECV_T"};

template <size_t count>
bool is_one_of(const std::array<What, count>& some, What what) {
  return std::ranges::find(some, what) != some.end();
}

/// Takes a number off the front.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

}  // namespace

bool is_send(What what) {
  constexpr std::array kSends = {What::send_output, What::send_gradient, What::send_features, What::send_scores,
                                 What::send_totals};
  return is_one_of(kSends, what);
}

bool is_receive(What what) {
  constexpr std::array kReceives = {What::receive_input, What::receive_gradient, What::receive_features,
                                    What::receive_scores, What::receive_totals};
  return is_one_of(kReceives, what);
}

Action partner_of(const Action& message) {
  const auto [what, stage, micro_batch] = message;
  if (what == What::send_output) return {What::receive_input, stage + 1, micro_batch};
  if (what == What::receive_input) return {What::send_output, stage - 1, micro_batch};
  if (what == What::send_gradient) return {What::receive_gradient, stage - 1, micro_batch};
  return {What::send_gradient, stage + 1, micro_batch};
}

std::string text_of(const Action& action) {
  return std::to_string(action.stage) + std::string(kKinds[static_cast<size_t>(action.what)]) +
         std::to_string(action.micro_batch);
}

std::optional<Action> parse_action(std::string_view text) {
  const auto stage = take_number(text);
  if (!stage) return std::nullopt;
  const auto kind = text.substr(0, text.find_first_of("0123456789"));
  const auto* const at = std::ranges::find(kKinds, kind);
  if (at == kKinds.end()) return std::nullopt;
  text.remove_prefix(kind.size());
  const auto micro_batch = take_number(text);
  if (!micro_batch || !text.empty()) return std::nullopt;
  return Action{static_cast<What>(at - kKinds.begin()), *stage, *micro_batch};
}

}  // namespace tandem::pipeline
