#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"

namespace tandem::job {

/// One of the texts that a setting accepts, and its value. A table of choices is the only place that knows the texts:
/// the setting's choices and its parser come from it.
template <class T>
struct Choice {
  std::string_view name;
  T value;
};

/// The names of a table's rows.
template <class Table>
std::vector<std::string_view> names_of(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& row : table) names.push_back(row.name);
  return names;
}

/// `text`, then "name: doc" of each of a table's rows, with semicolons between.
template <class Table>
std::string docs_of(const Table& table, std::string text = "") {
  for (const auto& row : table) text.append(text.empty() ? "" : "; ").append(row.name).append(": ").append(row.doc);
  return text;
}

/// `name` must be in the table; the schema has checked that.
template <class T, size_t count>
const T& chosen(const std::array<Choice<T>, count>& table, std::string_view name) {
  for (const auto& choice : table) {
    if (choice.name == name) return choice.value;
  }
  throw SettingsError("'" + std::string(name) + "' is no choice of this setting");
}

}  // namespace tandem::job
