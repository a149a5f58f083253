#include "config/keys.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "base/files.h"
#include "base/text.h"

namespace omni {
namespace {

std::string table_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string() : std::string(path.substr(0, dot));
}

std::string_view leaf_of(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// The parser makes a table of each part of a dotted key, and takes tables down by recursion:
// without a bound a line of a megabyte overflows the stack. (What brackets nest it bounds itself.)
constexpr int kMostKeyParts = 32;

// Behind the string that begins here. One that does not end is the parser's to refuse.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::size_t width = text.substr(at).starts_with(std::string(3, quote)) ? 3 : 1;
  const std::string_view end = text.substr(at, width);
  at += width;
  while (at < text.size() && !text.substr(at).starts_with(end)) {
    if (width == 1 && text[at] == '\n') return at;
    at += quote == '"' && text[at] == '\\' ? 2 : 1;
  }
  return at + width;
}

// The line of a key with too many parts.
std::optional<std::size_t> line_of_deep_key(std::string_view text) {
  int parts = 1;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = end_of_string(text, at);
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '.' && ++parts > kMostKeyParts) {
      return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    }
    if (std::string_view("\n=[]{},").find(c) != std::string_view::npos) parts = 1;
    ++at;
  }
  return std::nullopt;
}

}  // namespace

Result<KeyFile> KeyFile::read(const std::filesystem::path& path, const std::vector<Key>& keys) {
  const auto content = read_file(path, Bytes(1 << 20));
  if (!content.ok()) return bad(content.error().message);
  if (const auto line = line_of_deep_key(*content)) {
    return bad(fmt::format("{}:{}: a key has more than {} parts between dots", path.string(), *line,
                           kMostKeyParts));
  }
  KeyFile file(path);
  file.learn(keys, false);
  try {
    file.read_table(toml::parse(*content, path.string()), "", "", keys);
    file.require("", "", keys);
  } catch (const toml::parse_error& error) {
    return bad(
        fmt::format("{}:{}: {}", path.string(), error.source().begin.line, error.description()));
  }
  return file;
}

void KeyFile::learn(const std::vector<Key>& keys, bool in_array) {
  for (const Key& key : keys) {
    known_.push_back({key.path, in_array});
    if (key.element) learn(key.element().keys, true);
  }
}

// `prefix` names keys as the table of keys does ("weights."), `shown` as problems do
// ("weights[1].").
void KeyFile::read_table(const toml::table& table, const std::string& prefix,
                         const std::string& shown, const std::vector<Key>& keys) {
  for (const auto& [name, node] : table) {
    const std::string path = prefix + std::string(name.str());
    const std::string shown_path = shown + std::string(name.str());
    lines_[shown_path] = name.source().begin.line;
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const Key& row) { return row.path == path; });
    const bool is_group = std::any_of(
        keys.begin(), keys.end(), [&](const Key& row) { return row.path.starts_with(path + "."); });
    if (key != keys.end() && key->element) {
      read_elements(node, *key, shown_path);
    } else if (key != keys.end()) {
      if (const toml::table* entries = node.as_table()) {
        for (const auto& [entry, ignored] : *entries) {
          lines_[shown_path + "." + std::string(entry.str())] = entry.source().begin.line;
        }
      }
      auto stored = key->value.read(node);
      if (!stored.ok()) add_problem(shown_path, stored.error().message);
    } else if (is_group && node.is_table()) {
      read_table(*node.as_table(), path + ".", shown_path + ".", keys);
    } else if (is_group) {
      add_problem(shown_path, wrong_type(fmt::format("a table, [{}]", path), node).message);
    } else {
      add_problem(shown_path, explain_unknown(prefix, name.str(), keys));
    }
  }
}

void KeyFile::require(const std::string& prefix, const std::string& shown,
                      const std::vector<Key>& keys) {
  for (const Key& key : keys) {
    const std::string shown_path = shown + key.path.substr(prefix.size());
    if (key.fallback == "required" && !has(shown_path)) add_problem(shown_path, "is missing");
  }
}

void KeyFile::read_elements(const toml::node& node, const Key& key, const std::string& shown) {
  const toml::array* elements = node.as_array();
  if (elements == nullptr) {
    add_problem(shown,
                wrong_type(fmt::format("an array of tables, [[{}]]", key.path), node).message);
    return;
  }
  for (std::size_t i = 0; i < elements->size(); ++i) {
    const std::string name = fmt::format("{}[{}]", shown, i);
    lines_[name] = (*elements)[i].source().begin.line;
    const toml::table* element = (*elements)[i].as_table();
    if (element == nullptr) {
      add_problem(name,
                  wrong_type(fmt::format("a table, [[{}]]", key.path), (*elements)[i]).message);
      continue;
    }
    const Element next = key.element();
    read_table(*element, key.path + ".", name + ".", next.keys);
    require(key.path + ".", name + ".", next.keys);
    next.keep();
  }
}

std::string KeyFile::explain_unknown(const std::string& prefix, std::string_view name,
                                     const std::vector<Key>& keys) const {
  auto belongs = [](const Place& place) -> std::string {
    const std::string table = table_of(place.path);
    if (table.empty()) return "at the top of the file, before the first [table]";
    return fmt::format(fmt::runtime(place.in_array ? "in [[{}]]" : "in [{}]"), table);
  };
  for (const Place& place : known_) {
    if (leaf_of(place.path) == name) {
      return fmt::format("unknown key: {} belongs {}", name, belongs(place));
    }
  }
  std::vector<std::string_view> here;
  for (const Key& key : keys) {
    if (!key.path.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(key.path).substr(prefix.size());
    here.push_back(rest.substr(0, rest.find('.')));
  }
  if (const std::string nearest = nearest_name(name, here); !nearest.empty()) {
    return fmt::format("unknown key: did you mean {}?", nearest);
  }
  std::vector<std::string_view> elsewhere;
  elsewhere.reserve(known_.size());
  for (const Place& place : known_) elsewhere.push_back(leaf_of(place.path));
  const std::string nearest = nearest_name(name, elsewhere);
  for (const Place& place : known_) {
    if (leaf_of(place.path) == nearest) {
      return fmt::format("unknown key: did you mean {} {}?", nearest, belongs(place));
    }
  }
  return "unknown key: docs/configuration.md lists the known ones";
}

// A key that is not in the file is at fault where its table is.
std::uint32_t KeyFile::line_of(std::string key) const {
  for (; !key.empty(); key = table_of(key)) {
    if (const auto found = lines_.find(key); found != lines_.end()) return found->second;
  }
  return 1;
}

void KeyFile::add_problem(const std::string& key, std::string message) {
  problems_.emplace(line_of(key), Problem{key, std::move(message)});
}

Result<void> KeyFile::result() const {
  if (problems_.empty()) return {};
  std::string message;
  for (const auto& [line, problem] : problems_) {
    if (!message.empty()) message += '\n';
    message += fmt::format("{}:{}: {}: {}", path_.string(), line, problem.key, problem.message);
  }
  return bad(std::move(message));
}

std::vector<KeyDoc> to_docs(const std::vector<Key>& keys) {
  std::vector<KeyDoc> docs;
  for (const Key& key : keys) {
    if (key.is_one_more) continue;
    docs.push_back({key.path, key.value.type, key.fallback, key.meaning});
    if (!key.element) continue;
    const std::vector<KeyDoc> below = to_docs(key.element().keys);
    docs.insert(docs.end(), below.begin(), below.end());
  }
  return docs;
}

}  // namespace omni
