#pragma once

namespace tandem {

/// While it lives, fill_normal_() and fill_uniform_() of this thread write zeros: for models whose values nobody reads,
/// such as those of a rehearsal, most of whose time drawing would be.
class WithoutDraws {
 public:
  WithoutDraws();
  ~WithoutDraws();
  WithoutDraws(const WithoutDraws&) = delete;
  WithoutDraws& operator=(const WithoutDraws&) = delete;

  static bool is_set();

 private:
  bool before_;
};

}  // namespace tandem
