// Reads a TOML file by one table of keys. A row says where a key's value goes, what is allowed and
// what it means; parsing, messages about unknown keys and docs/configuration.md come from the same
// rows. Private to this module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/model_spec.h"
#include "config/readers.h"

namespace toml {
inline namespace v3 {
class table;
}  // namespace v3
}  // namespace toml

namespace omni {

struct Key;

// One element of an array of tables while it is read: its keys, and what adds it to the rest.
struct Element {
  std::vector<Key> keys;
  std::function<void()> keep;
};

struct Key {
  std::string path;      // "scaling.stop_after"
  std::string fallback;  // as written in TOML: "\"1h\""; "required"; or words in parentheses
  std::string meaning;
  ValueReader value;                 // empty read: an array of tables
  std::function<Element()> element;  // for an array of tables: starts one more
  bool is_one_more = false;          // of a numbered row that the documentation has already
};

// A file that has been read: where each key stood, and what is wrong so far.
class KeyFile {
 public:
  // Reads the file and stores the values of all keys it holds. Fails if the file cannot be read or
  // is no TOML; all else is a problem.
  static Result<KeyFile> read(const std::filesystem::path& path, const std::vector<Key>& keys);

  bool has(const std::string& key) const { return lines_.contains(key); }
  // "weights[1].source" names the second element's.
  void add_problem(const std::string& key, std::string message);
  // Every problem, a line each in the order of the file: "FILE:LINE: KEY: MESSAGE".
  Result<void> result() const;

 private:
  struct Place {
    std::string path;
    bool in_array;
  };
  struct Problem {
    std::string key;
    std::string message;
  };

  explicit KeyFile(std::filesystem::path path) : path_(std::move(path)) {}

  void learn(const std::vector<Key>& keys, bool in_array);
  void read_table(const toml::table& table, const std::string& prefix, const std::string& shown,
                  const std::vector<Key>& keys);
  void require(const std::string& prefix, const std::string& shown, const std::vector<Key>& keys);
  void read_elements(const toml::node& node, const Key& key, const std::string& shown);
  std::string explain_unknown(const std::string& prefix, std::string_view name,
                              const std::vector<Key>& keys) const;
  std::uint32_t line_of(std::string key) const;

  std::filesystem::path path_;
  std::vector<Place> known_;  // those of array elements too, for "belongs in"
  std::map<std::string, std::uint32_t> lines_;
  std::multimap<std::uint32_t, Problem> problems_;  // by line; equal lines stay in order
};

// The rows for the documentation, elements of arrays of tables included.
std::vector<KeyDoc> to_docs(const std::vector<Key>& keys);

}  // namespace omni
