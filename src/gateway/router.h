// Which endpoint a path names. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/task.h"

namespace omni::gateway {

enum class Api : std::uint8_t {
  root,
  health,
  livez,
  readyz,
  metrics,
  running,
  models,
  model,
  chat,
  completions,
  embeddings,
  rerank,
  transcriptions,
  speech,
  image_generations,
  image_edits,
  run,
  upstream,
  admin,
};

struct Route {
  Api api = Api::root;
  std::string model;  // named by the path: /v1/models/{}, /ai/run/{}, /upstream/{}/...
  std::string rest;   // of /upstream: the engine's own path with the query, "/tokenize?x=1"
};

// not_found, or invalid_request for a broken %-escape.
Result<Route> find_route(std::string_view target);
// "GET, HEAD": for the Allow header; empty: every method.
std::string_view allowed_methods(Api api);
bool method_allowed(Api api, std::string_view method);

// Whether models of this task are served there.
bool serves(Api api, Task task);
// "POST /v1/embeddings": where a model of this task is served.
std::string_view endpoint_of(Task task);

}  // namespace omni::gateway
