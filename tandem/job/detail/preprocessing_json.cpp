#include "tandem/job/detail/preprocessing_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/base/suggest.h"
#include "tandem/job/sections/picture_choices.h"

namespace tandem::job::detail {
namespace {

using nlohmann::json;

constexpr int64_t kMostSide = 65535;

template <class T, size_t count>
std::string name_in(const std::array<Choice<T>, count>& table, T value) {
  return std::string(std::ranges::find(table, value, &Choice<T>::value)->name);
}

/// The entries of the object, each read once and checked.
class Entries {
 public:
  Entries(const json& object, const std::string& file) : object_(object), file_(file) {
    if (object.is_object()) return;
    throw DataError(quote(file) + ": preprocessing is missing, wanted an object", "the file is of another version");
  }

  template <class T, size_t count>
  T choice(const char* key, const std::array<Choice<T>, count>& table) const {
    const auto& value = entry(key);
    const auto found =
        value.is_string() ? std::ranges::find(table, value.get<std::string>(), &Choice<T>::name) : table.end();
    if (found == table.end()) {
      const auto names = names_of(table);
      refuse(key, value, one_of(std::vector<std::string>(names.begin(), names.end())));
    }
    return found->value;
  }

  int64_t whole(const char* key, int64_t least) const {
    const auto& value = entry(key);
    const bool good = value.is_number_integer() && value >= least && value <= kMostSide;
    if (!good) refuse(key, value, "a whole number " + std::to_string(least) + ".." + std::to_string(kMostSide));
    return value.get<int64_t>();
  }

  bool truth(const char* key) const {
    const auto& value = entry(key);
    if (!value.is_boolean()) refuse(key, value, "true or false");
    return value.get<bool>();
  }

  int64_t side(const char* key, int64_t wanted) const {
    const auto value = whole(key, 1);
    if (value == wanted) return value;
    refuse(std::string(key) + " is " + std::to_string(value) + ", wanted " + std::to_string(wanted) +
           " as the model's input has");
  }

  std::vector<double> numbers(const char* key, int64_t channels, bool positive) const {
    const auto& value = entry(key);
    const auto is_good = [&](const json& one) {
      return one.is_number() && std::isfinite(one.get<double>()) && (!positive || one.get<double>() > 0);
    };
    if (!value.is_array() || value.empty() || !std::ranges::all_of(value, is_good)) {
      refuse(key, value, positive ? "a list of positive numbers" : "a list of numbers");
    }
    if (value.size() != 1 && static_cast<int64_t>(value.size()) != channels) {
      refuse(std::string(key) + " has " + std::to_string(value.size()) + " numbers, wanted 1" +
             (channels == 1 ? "" : " or " + std::to_string(channels)));
    }
    return value.get<std::vector<double>>();
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(quote(file_) + ": preprocessing." + what, "the file is damaged, or of a later version");
  }

 private:
  const json& entry(const char* key) const {
    static const json none;
    const auto found = object_.find(key);
    return found == object_.end() ? none : *found;
  }

  [[noreturn]] void refuse(const std::string& key, const json& value, const std::string& wanted) const {
    refuse(key + " is " + printable(value.is_null() ? "missing" : value.dump(), 120) + ", wanted " + wanted);
  }

  const json& object_;
  const std::string& file_;
};

}  // namespace

nlohmann::ordered_json preprocessing_json(const data::Preprocessing& preprocessing) {
  const auto& form = preprocessing.form;
  return {{"height", form.height},
          {"width", form.width},
          {"orientation", name_in(kOrientations, form.orientation)},
          {"resize", name_in(kFits, form.fit)},
          {"filter", name_in(kFilters, form.filter)},
          {"antialias", form.antialias},
          {"reducing_gap", form.reducing_gap},
          {"colours", name_in(kColours, form.colours)},
          {"inverted", form.inverted},
          {"mean", preprocessing.normalization.mean},
          {"std", preprocessing.normalization.deviation}};
}

data::Preprocessing read_preprocessing(const json& json, const std::array<int64_t, 3>& input, const std::string& file) {
  const Entries entries(json, file);
  data::Preprocessing all;
  all.form = {.height = entries.side("height", input[1]),
              .width = entries.side("width", input[2]),
              .orientation = entries.choice("orientation", kOrientations),
              .fit = entries.choice("resize", kFits),
              .filter = entries.choice("filter", kFilters),
              .antialias = entries.truth("antialias"),
              .reducing_gap = entries.whole("reducing_gap", 0),
              .colours = entries.choice("colours", kColours),
              .inverted = entries.truth("inverted")};
  if (data::num_planes(all.form) != input[0]) {
    entries.refuse("colours is " + name_in(kColours, all.form.colours) + ", wanted " + std::to_string(input[0]) +
                   (input[0] == 1 ? " channel" : " channels") + " as the model's input has");
  }
  all.normalization.mean = entries.numbers("mean", input[0], false);
  all.normalization.deviation = entries.numbers("std", input[0], true);
  return all;
}

}  // namespace tandem::job::detail
