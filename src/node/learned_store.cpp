#include "node/learned_store.h"

#include <spdlog/spdlog.h>

#include <boost/json.hpp>

#include "base/files.h"

namespace omni::node {
namespace {

namespace json = boost::json;

// Another number of buckets, or other meanings: what was learned is of no use.
constexpr int kFormat = 1;
constexpr std::int64_t kLargestProfile = std::int64_t{1} << 50;

Duration duration_at(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  const double seconds = value != nullptr && value->is_number() ? value->to_number<double>() : 0;
  // Out of range is not of this program.
  if (!(seconds > 0 && seconds < 1e6)) return {};
  return std::chrono::duration_cast<Duration>(Seconds(seconds));
}

void read_counts(const json::object& object, const char* name,
                 std::array<double, ReuseRecord::kBuckets>& into) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_array() || value->get_array().size() != into.size()) return;
  for (std::size_t i = 0; i < into.size(); ++i) {
    const json::value& count = value->get_array()[i];
    if (count.is_number()) into[i] = count.to_number<double>();
  }
}

Learned learned_from(const json::object& object) {
  Learned learned;
  const json::value* profile = object.if_contains("profile_bytes");
  const bool plausible = profile != nullptr && profile->is_int64() && profile->get_int64() > 0 &&
                         profile->get_int64() < kLargestProfile;
  if (plausible) learned.profile = Bytes(profile->get_int64());
  learned.load_time = duration_at(object, "load_seconds");
  learned.restore_time = duration_at(object, "restore_seconds");
  learned.evict_time = duration_at(object, "evict_seconds");
  read_counts(object, "gaps_ended", learned.reuse.ended);
  read_counts(object, "gaps_outlasted", learned.reuse.outlasted);
  if (!learned.reuse.plausible()) learned.reuse = {};
  return learned;
}

json::object to_json(const std::string& version, const Learned& learned) {
  json::object object{{"version", version},
                      {"load_seconds", Seconds(learned.load_time).count()},
                      {"restore_seconds", Seconds(learned.restore_time).count()},
                      {"evict_seconds", Seconds(learned.evict_time).count()},
                      {"gaps_ended", json::value_from(learned.reuse.ended)},
                      {"gaps_outlasted", json::value_from(learned.reuse.outlasted)}};
  if (learned.profile) object["profile_bytes"] = learned.profile->count();
  return object;
}

Result<json::object> read(const std::filesystem::path& file) {
  TRY(const std::string text, read_file(file, Bytes(256 << 20)));
  boost::system::error_code status;
  json::value value = json::parse(text, status);
  const json::value* format =
      !status && value.is_object() ? value.get_object().if_contains("format") : nullptr;
  if (format == nullptr || *format != kFormat)
    return Error{ErrorCode::io_error, file.string() + " is not of this program's form"};
  const json::value* models = value.get_object().if_contains("models");
  return models != nullptr && models->is_object() ? models->get_object() : json::object();
}

}  // namespace

LearnedStore::LearnedStore(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code ignored;
  if (!std::filesystem::exists(file_, ignored)) return;
  const Result<json::object> models = read(file_);
  if (!models.ok()) {
    spdlog::warn("what was learned of models is lost, and learned anew: {}",
                 models.error().message);
    return;
  }
  for (const auto& [name, value] : *models) {
    if (!value.is_object()) continue;
    const json::value* version = value.get_object().if_contains("version");
    if (version == nullptr || !version->is_string()) continue;
    entries_[name] = {std::string(version->get_string()), learned_from(value.get_object())};
  }
}

std::optional<Learned> LearnedStore::of(const std::string& model, const std::string& version,
                                        bool size_is_declared) const {
  const auto found = entries_.find(model);
  if (found == entries_.end()) return std::nullopt;
  Learned learned = found->second.learned;
  if (found->second.version != version && size_is_declared) learned.profile.reset();
  return learned;
}

void LearnedStore::set(const std::string& model, const std::string& version,
                       const Learned& learned) {
  entries_[model] = {version, learned};
}

std::optional<std::string> LearnedStore::unsaved() const {
  json::object models;
  for (const auto& [name, entry] : entries_) models[name] = to_json(entry.version, entry.learned);
  std::string text =
      json::serialize(json::object{{"format", kFormat}, {"models", std::move(models)}}) + "\n";
  if (text == saved_) return std::nullopt;
  return text;
}

}  // namespace omni::node
