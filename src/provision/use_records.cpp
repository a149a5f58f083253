#include "provision/use_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/files.h"

namespace omni {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

json::array to_array(const std::set<std::string>& names) {
  return json::array(names.begin(), names.end());
}

Result<std::set<std::string>> names_of(const json::object& record, std::string_view key) {
  std::set<std::string> names;
  const json::value* list = record.if_contains(key);
  if (list == nullptr || !list->is_array()) {
    return Error{ErrorCode::io_error, fmt::format("it has no list \"{}\"", key)};
  }
  for (const json::value& name : list->get_array()) {
    if (!name.is_string()) {
      return Error{ErrorCode::io_error, fmt::format("\"{}\" holds something else than names", key)};
    }
    names.emplace(name.get_string());
  }
  return names;
}

Result<Used> parse_record(const std::string& text) {
  boost::system::error_code status;
  const json::value value = json::parse(text, status);
  if (status || !value.is_object()) return Error{ErrorCode::io_error, "it is no JSON object"};
  Used used;
  TRY(used.versions, names_of(value.get_object(), "versions"));
  TRY(used.environments, names_of(value.get_object(), "environments"));
  TRY(used.weights, names_of(value.get_object(), "weights"));
  return used;
}

}  // namespace

void Used::add(const Used& other) {
  versions.insert(other.versions.begin(), other.versions.end());
  environments.insert(other.environments.begin(), other.environments.end());
  weights.insert(other.weights.begin(), other.weights.end());
}

fs::path records_folder(const fs::path& state) { return state / "versions"; }

fs::path record_file(const fs::path& state, const std::string& model) {
  return records_folder(state) / (model + ".json");
}

fs::path model_lock(const fs::path& state, const std::string& model) {
  return records_folder(state) / (model + ".lock");
}

// No model's name starts with a dot.
fs::path garbage_lock(const fs::path& state) { return records_folder(state) / ".gc.lock"; }

Result<Used> read_record(const fs::path& file) {
  TRY(const std::string text, read_file(file));
  auto used = parse_record(text);
  if (used.ok()) return used;
  return Error{used.error().code,
               fmt::format("{}: {}: remove it; the daemon writes it anew when it starts",
                           file.string(), used.error().message)};
}

UseRecords::Entry& UseRecords::entry(const std::string& model) {
  const auto [found, is_new] = entries_.try_emplace(model);
  if (!is_new) return found->second;
  // A record that cannot be read is written anew; what only it named is then garbage.
  if (auto before = read_record(record_file(state_, model)); before.ok()) {
    found->second.before = *std::move(before);
  }
  return found->second;
}

Result<void> UseRecords::write(const std::string& model, const Entry& entry) const {
  Used all = entry.before;
  all.add(entry.own);
  const json::object record{{"model", model},
                            {"versions", to_array(all.versions)},
                            {"environments", to_array(all.environments)},
                            {"weights", to_array(all.weights)}};
  CHECK(make_directories(records_folder(state_)));
  return write_file_atomic(record_file(state_, model), json::serialize(record) + "\n");
}

Result<void> UseRecords::claim(const std::string& model, const Used& more) {
  const std::lock_guard lock(mutex_);
  Entry& mine = entry(model);
  mine.own.add(more);
  return write(model, mine);
}

Result<bool> UseRecords::commit(const std::string& model, const Used& all,
                                const std::vector<fs::path>& must_exist) {
  const std::lock_guard lock(mutex_);
  Entry& mine = entry(model);
  mine.before = {};
  mine.own.add(all);
  CHECK(write(model, mine));
  return std::all_of(must_exist.begin(), must_exist.end(), [](const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
  });
}

}  // namespace omni
