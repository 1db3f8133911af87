#include <toml++/toml.h>

#include <functional>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/quote.h"
#include "tandem/settings/detail/names_given.h"
#include "tandem/settings/detail/toml_depth.h"
#include "tandem/settings/settings.h"
#include "tandem/settings/value.h"

namespace tandem::settings {
namespace {

constexpr size_t kLongestFault = 300;
constexpr int kMostParts = 16;  // of a dotted key

std::string place(const std::string& name, size_t line, size_t column) {
  return name + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
}

std::string place(const std::string& name, const toml::source_region& source) {
  return place(name, source.begin.line, source.begin.column);
}

/// Rejects deep keys: toml++ makes nested tables for the parts of a key and walks them by recursion.
void check_depth(std::string_view text, const std::string& name) {
  const auto deep = detail::find_deep_key(text, kMostParts);
  if (!deep) return;
  throw SettingsError(place(name, deep->line, deep->column) + "a key has more than " + std::to_string(kMostParts) +
                          " parts, wanted one of the settings",
                      "--help lists them");
}

/// Writes a float so that it stays one: 3 becomes 3.0.
std::string toml_number(double number) {
  const auto text = format_value(number);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

std::string toml_text(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string toml_value(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return toml_text(*text);
  if (const auto* number = std::get_if<double>(&value)) return toml_number(*number);
  std::string list;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const auto& text : *texts) list += (list.empty() ? "" : ", ") + toml_text(text);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    for (const double number : *numbers) list += (list.empty() ? "" : ", ") + toml_number(number);
  } else {
    return format_value(value);
  }
  return "[" + list + "]";
}

/// A value as the command line would write it; nullopt if it has no such form.
std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* number = node.as_floating_point()) return format_value(number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

/// True if the node has a type that the setting accepts. A text is no number, and a number is no bool, but a whole
/// number may stand for a text (data.classes = 3755), and true for a text that is one of "true" and others.
bool fits(const Setting& setting, const toml::node& node) {
  const auto& kind = setting.default_value;
  if (std::holds_alternative<bool>(kind)) return node.is_boolean();
  if (node.is_boolean()) return std::ranges::find(setting.choices, "true") != setting.choices.end();
  const bool is_text = kind.index() == 3 || std::holds_alternative<std::vector<std::string>>(kind);
  return is_text ? node.is_string() || node.is_integer() : node.is_number();
}

const char* kind_name(const toml::node& node) {
  if (node.is_table()) return "a section";
  if (node.is_array()) return "a list";
  if (node.is_string()) return "a text";
  if (node.is_boolean()) return "true or false";
  return node.is_number() ? "a number" : "a date or time";
}

/// The accepted values as TOML writes them, with lists in brackets.
std::string wanted_node(const Setting& setting) {
  if (std::holds_alternative<std::vector<std::string>>(setting.default_value)) return "a list like [\"a\", \"b\"]";
  if (std::holds_alternative<std::vector<double>>(setting.default_value)) return "a list like [1.0, 2.5]";
  return wanted_kind(setting);
}

/// A text where another type is wanted, as TOML writes that type: 0.1 for "0.1", ["a"] for "a". "" if there is none.
std::string unquoted(const Setting& setting, const std::string& text) {
  try {
    return toml_value(read_value(setting, text));
  } catch (const Error&) {
    return "";
  }
}

[[noreturn]] void reject_kind(const Setting& setting, const toml::node& node, bool is_element = false) {
  const auto* number = node.as_floating_point();
  const auto text = number != nullptr ? toml_number(number->get()) : scalar_text(node);
  auto value = node.is_string() ? unquoted(setting, *text) : "";
  if (is_element && !value.empty()) value = value.substr(1, value.size() - 2);  // without a list's brackets
  throw SettingsError(
      std::string(setting.key) + " is " + (text ? quote(*text) : kind_name(node)) + ", wanted " + wanted_node(setting),
      value.empty() ? "" : "write " + printable(value, kLongestFault));
}

Value read_node(const Setting& setting, const toml::node& node) {
  const bool is_list = setting.default_value.index() >= 4;
  if (is_list && node.is_array()) {
    std::vector<std::string> parts;
    for (const auto& element : *node.as_array()) {
      if (!fits(setting, element)) reject_kind(setting, element, /*is_element=*/true);
      parts.push_back(*scalar_text(element));
    }
    return read_list(setting, parts);
  }
  if (is_list || !fits(setting, node)) reject_kind(setting, node);
  return read_value(setting, *scalar_text(node));
}

using Visit = std::function<void(const std::string& key, const toml::node& node)>;

/// Visits all leaves. An empty table counts as a leaf: it may be a misspelt section. `name`: the name of `table`; one
/// string is reused for all levels.
void visit_leaves(const toml::table& table, std::string& name, const Visit& visit) {
  const auto length = name.size();
  for (const auto& [key, node] : table) {
    name.append(length > 0 ? "." : "").append(key.str());
    if (const auto* inner = node.as_table(); inner && !inner->empty()) {
      visit_leaves(*inner, name, visit);
    } else {
      visit(name, node);
    }
    name.resize(length);
  }
}

std::string remedy_for_toml(Schema schema, std::string_view fault) {
  if (fault.find("redefine") != fault.npos) {
    std::string names;
    for (const auto& setting : schema) {
      if (is_section(schema, setting.key)) names.append(names.empty() ? "" : ", ").append(setting.key);
    }
    return "a key stands twice; where " + names + " is a section too, write the value as name = ... in the section";
  }
  if (fault.find("could not determine value type") != fault.npos) {
    return "a text stands in quotes, and a truth value is true or false";
  }
  return "the file is written in TOML";
}

}  // namespace

void Settings::load_toml(std::string_view text, const std::string& name) {
  check_depth(text, name);
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw SettingsError(place(name, error.source()) + printable(error.description(), kLongestFault),
                        remedy_for_toml(schema_, error.description()));
  }
  std::string prefix;
  detail::NamesGiven names(schema_);
  visit_leaves(table, prefix, [&](const std::string& key, const toml::node& node) {
    if (node.is_table() && is_section(schema_, key)) return;
    try {
      const auto& setting = require(key);
      put(setting, read_node(setting, node));
      names.add(key);
    } catch (const SettingsError& error) {
      throw SettingsError(place(name, node.source()) + error.what());
    }
  });
}

std::string Settings::to_toml() const {
  std::string top, sections, section;
  for (const auto& setting : schema_) {
    const auto dot = setting.key.find('.');
    const auto value = " = " + toml_value(get(setting.key)) + "\n";
    const bool is_head = dot == std::string_view::npos && is_section(schema_, setting.key);
    if (dot == std::string_view::npos && !is_head) {
      top += std::string(setting.key) + value;
      continue;
    }
    const auto name = std::string(setting.key.substr(0, dot));
    if (name != section) sections += "\n[" + name + "]\n";
    section = name;
    sections += (is_head ? "name" : std::string(setting.key.substr(dot + 1))) + value;
  }
  return top + sections;
}

}  // namespace tandem::settings
