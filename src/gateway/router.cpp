#include "gateway/router.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "http/message.h"

namespace omni::gateway {
namespace {

struct FixedPath {
  std::string_view path;
  Api api;
};
constexpr std::array<FixedPath, 15> kFixedPaths{{
    {"/", Api::root},
    {"/health", Api::health},
    {"/livez", Api::livez},
    {"/readyz", Api::readyz},
    {"/metrics", Api::metrics},
    {"/running", Api::running},
    {"/v1/models", Api::models},
    {"/v1/chat/completions", Api::chat},
    {"/v1/completions", Api::completions},
    {"/v1/embeddings", Api::embeddings},
    {"/v1/rerank", Api::rerank},
    {"/v1/audio/transcriptions", Api::transcriptions},
    {"/v1/audio/speech", Api::speech},
    {"/v1/images/generations", Api::image_generations},
    {"/v1/images/edits", Api::image_edits},
}};

constexpr std::string_view kModels = "/v1/models/";
constexpr std::string_view kRun = "/ai/run/";
constexpr std::string_view kUpstream = "/upstream/";

Error unknown_path(std::string_view path) {
  std::vector<std::string_view> known;
  known.reserve(kFixedPaths.size());
  for (const FixedPath& fixed : kFixedPaths) known.push_back(fixed.path);
  const std::string nearest = path.size() > 3 ? nearest_name(path, known) : "";
  return {ErrorCode::not_found,
          nearest.empty() ? fmt::format("there is nothing at {}", path)
                          : fmt::format("there is nothing at {}; did you mean {}?", path, nearest)};
}

Result<Route> named_route(Api api, std::string_view escaped, std::string rest = {}) {
  auto name = http::percent_decode(escaped);
  if (!name) {
    return Error{ErrorCode::invalid_request,
                 fmt::format("the path has a broken %-escape: {}", escaped)};
  }
  return Route{api, std::move(*name), std::move(rest)};
}

}  // namespace

Result<Route> find_route(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  for (const FixedPath& fixed : kFixedPaths) {
    if (path == fixed.path) return Route{fixed.api, {}, {}};
  }
  if (path == "/admin" || path.starts_with("/admin/")) return Route{Api::admin, {}, {}};
  if (path.starts_with(kModels) && path.size() > kModels.size()) {
    return named_route(Api::model, path.substr(kModels.size()));
  }
  if (path.starts_with(kRun) && path.size() > kRun.size()) {
    return named_route(Api::run, path.substr(kRun.size()));
  }
  if (path.starts_with(kUpstream) && path.size() > kUpstream.size()) {
    const std::string_view after = path.substr(kUpstream.size());
    const std::string_view name = after.substr(0, after.find('/'));
    std::string rest(target.substr(kUpstream.size() + name.size()));
    if (!rest.starts_with('/')) rest.insert(0, "/");
    return named_route(Api::upstream, name, std::move(rest));
  }
  return unknown_path(path);
}

std::string_view allowed_methods(Api api) {
  switch (api) {
    case Api::root:
    case Api::health:
    case Api::livez:
    case Api::readyz:
    case Api::metrics:
    case Api::running:
    case Api::models:
    case Api::model:
      return "GET, HEAD, OPTIONS";
    case Api::chat:
    case Api::completions:
    case Api::embeddings:
    case Api::rerank:
    case Api::transcriptions:
    case Api::speech:
    case Api::image_generations:
    case Api::image_edits:
    case Api::run:
      return "POST, OPTIONS";
    case Api::upstream:
    case Api::admin:
      return "";
  }
  return "";
}

bool method_allowed(Api api, std::string_view method) {
  std::string_view allowed = allowed_methods(api);
  if (allowed.empty()) return true;
  while (!allowed.empty()) {
    const std::size_t comma = std::min(allowed.find(','), allowed.size());
    if (allowed.substr(0, comma) == method) return true;
    allowed.remove_prefix(std::min(comma + 2, allowed.size()));
  }
  return false;
}

bool serves(Api api, Task task) {
  switch (api) {
    case Api::chat:
      return task == Task::chat;
    case Api::completions:
      return task == Task::chat || task == Task::completion;
    case Api::embeddings:
      return task == Task::embeddings;
    case Api::rerank:
      return task == Task::rerank || task == Task::embeddings;
    case Api::transcriptions:
      return task == Task::speech_to_text;
    case Api::speech:
      return task == Task::text_to_speech;
    case Api::image_generations:
      return task == Task::image_generation;
    case Api::image_edits:
      return task == Task::image_to_image;
    default:
      return true;
  }
}

std::string_view endpoint_of(Task task) {
  switch (task) {
    case Task::chat:
      return "POST /v1/chat/completions";
    case Task::completion:
      return "POST /v1/completions";
    case Task::embeddings:
      return "POST /v1/embeddings";
    case Task::rerank:
      return "POST /v1/rerank";
    case Task::speech_to_text:
      return "POST /v1/audio/transcriptions";
    case Task::text_to_speech:
      return "POST /v1/audio/speech";
    case Task::image_generation:
      return "POST /v1/images/generations";
    case Task::image_to_image:
      return "POST /v1/images/edits";
    case Task::audio_to_audio:
    case Task::other:
      return "POST /ai/run/{model}";
  }
  return "";
}

}  // namespace omni::gateway
