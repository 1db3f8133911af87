#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/settings/schema.h"

namespace tandem::settings {

/// A job's settings: defaults, then a TOML file, then `key=value` words. Later layers override earlier ones; within a
/// layer the last value counts, and a setting may have only one of its names.
///
/// In a file, sections make dotted keys: `[train] lr = 0.1` is train.lr. A setting that is also a section (`data`,
/// `head`) is written as the section's entry `name`: `[head] name = "cosface"`, but on the command line as
/// `head=cosface`. Error texts are one line; those for a file begin with its name, line and column.
class Settings {
 public:
  explicit Settings(Schema schema);

  /// Reads the text of a TOML file, which errors call `name`. Throws SettingsError: not TOML, unknown key, wrong value,
  /// a setting by its name and by its former one.
  void load_toml(std::string_view text, const std::string& name);

  /// Throws SettingsError: unknown key, wrong value.
  void set(std::string_view key, std::string_view text);

  /// As set(), for a value that the program chooses where none was given: given() stays false.
  void choose(std::string_view key, std::string_view text);

  /// Applies words `key=value`. Throws UsageError for a word of another form, SettingsError as set() does, and for a
  /// setting by its name and by its former one.
  void apply(std::span<const std::string> words);

  // The value of a setting of this type; a wrong key or type is a bug of the program.
  int64_t get_int(std::string_view key) const;
  double get_float(std::string_view key) const;
  bool get_bool(std::string_view key) const;
  const std::string& get_string(std::string_view key) const;
  const std::vector<std::string>& get_list(std::string_view key) const;
  const std::vector<double>& get_numbers(std::string_view key) const;
  const Value& get(std::string_view key) const;

  bool given(std::string_view key) const;       // true if a file or a word has set it
  bool is_default(std::string_view key) const;  // true if it has the default value, given or not

  /// All settings with their values, as a TOML file that load_toml() reads.
  std::string to_toml() const;

  Schema schema() const { return schema_; }

 private:
  struct Entry {
    Value value;
    bool given = false;
  };

  size_t index_of(std::string_view key) const;
  const Setting& require(std::string_view key) const;
  void put(const Setting& setting, Value value);
  template <class T>
  const T& get_as(std::string_view key) const;

  Schema schema_;
  std::vector<Entry> entries_;
};

/// All settings of a schema, for a terminal of so many columns: key and default, and in the lines below them the
/// meaning and the accepted values.
std::string describe(Schema schema, size_t columns);

/// The same as the rows of a Markdown table: `| `key` | default | values | meaning |`.
std::string describe_markdown(Schema schema);

}  // namespace tandem::settings
