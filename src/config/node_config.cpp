#include "config/node_config.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "config/keys.h"
#include "config/machine_memory.h"
#include "config/names.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

// What the file says, before it is known to make sense.
struct NodeDraft {
  NodeConfig config;
  std::vector<std::string> listen;
  std::vector<std::string> models;
  std::optional<Bytes> host_memory;
};

bool is_loopback(const std::string& host) {
  in_addr v4 = {};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return host == "::1";
}

// What is wrong with the address, or nothing.
std::string parse_listen(std::string_view text, Listen& listen) {
  const std::size_t colon = text.rfind(':');
  const std::string_view port = text.substr(colon == std::string_view::npos ? 0 : colon + 1);
  auto [end, status] = std::from_chars(port.data(), port.data() + port.size(), listen.port);
  if (colon == std::string_view::npos || status != std::errc() ||
      end != port.data() + port.size()) {
    return fmt::format("\"{}\" is no address with a port: write for example \"127.0.0.1:8484\"",
                       text);
  }
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  listen.host = host;
  unsigned char address[sizeof(in6_addr)];
  const bool numeric =
      ::inet_pton(bracketed ? AF_INET6 : AF_INET, listen.host.c_str(), address) == 1;
  if (!numeric) {
    return fmt::format(
        "\"{}\" has no numeric address: write for example \"127.0.0.1:{}\" or \"[::1]:{}\"", text,
        listen.port, listen.port);
  }
  return {};
}

std::string check_listen(std::string_view text) {
  Listen ignored;
  return parse_listen(text, ignored);
}

// "https://app.example.org", "http://localhost:3000": what a browser sends as Origin.
std::string check_origin(std::string_view origin) {
  std::string_view rest = origin;
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!rest.starts_with(scheme)) continue;
    rest.remove_prefix(scheme.size());
    if (is_made_of(rest, ".-:[]")) return {};
  }
  return fmt::format(
      "\"{}\" is no origin: write scheme, host and port without a path, for example "
      "\"http://localhost:3000\"",
      origin);
}

std::string check_digest(std::string_view digest) {
  const bool valid = digest.size() == 64 &&
                     digest.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
  return valid ? std::string()
               : "must be a SHA-256 digest, 64 hexadecimal digits, as `omni key` prints";
}

std::string check_key_name(std::string_view name) {
  if (is_made_of(name, "._-@") && name.size() <= 64) return {};
  return fmt::format("\"{}\" is no name of a key: up to 64 letters, digits and . _ - @", name);
}

Element key_element(std::vector<ApiKey>& keys) {
  // Shared by the readers' table and keep(): both live in the returned value.
  auto key = std::make_shared<ApiKey>();
  std::vector<Key> rows{
      {"keys.name", "required", "Whose key it is, for logs.", text(key->name, check_key_name)},
      {"keys.sha256", "required", "SHA-256 of the key. `omni key NAME` makes both.",
       text(key->sha256, check_digest)}};
  auto keep = [&keys, key] {
    for (char& c : key->sha256) {
      if (c >= 'A' && c <= 'F') c = static_cast<char>(c + 32);
    }
    keys.push_back(*key);
  };
  return {std::move(rows), std::move(keep)};
}

// One row per number, of which the first is documented.
void add_gpu_keys(std::vector<Key>& keys, NodeConfig& config) {
  for (std::uint32_t number = 0; number < kMostGpus; ++number) {
    Key key{fmt::format("device.gpu{}.memory", number), "(no such GPU)",
            fmt::format("Memory that models may hold on this GPU; `gpu1` to `gpu{}` likewise. N is "
                        "the number that CUDA counts it by.",
                        kMostGpus - 1),
            bytes([&config, number](Bytes value) { config.gpu_memory[number] = value; }, 16_MiB)};
    key.is_one_more = number > 0;
    keys.push_back(std::move(key));
  }
}

std::vector<Key> node_keys(NodeDraft& draft) {
  NodeConfig& config = draft.config;
  std::vector<Key> keys{
      {"listen", R"(["127.0.0.1:8484", "[::1]:8484"])",
       "Addresses of the API, numeric. Those that other machines reach want `[[keys]]`. Port 0 "
       "takes "
       "a free one. Empty: only the Unix socket.",
       texts(draft.listen, check_listen, "array of addresses")},
      {"cors_origins", "[]", "Origins of web pages that may call the API.",
       texts(config.cors_origins, check_origin, "array of origins")},
      {"public_without_keys", "false",
       "Listen where other machines reach it though there are no `[[keys]]`: whoever gets there "
       "may "
       "use every model.",
       flag(config.public_without_keys)},
      {"io_threads", "0", "Threads that serve requests. 0: one per core, at most 16.",
       count(config.io_threads, 0, 256)},
      {"models", "[\"models\"]", "Folders of models, relative to this file's folder.",
       texts(draft.models, non_empty(), "array of paths")},
      {"watch", "true",
       "Reload by itself when this file, a model's folder or a file in one changes. Without it "
       "`omni reload` or SIGHUP does.",
       flag(config.watch)},
      {"uid_range", "[700000, 799999]",
       "User ids that instances run as, one per model, when the daemon runs as root.",
       integer_range(config.uid_first, config.uid_last, 1000, 4294967293U)},

      {"device.host.memory", "(80 % of the machine's)",
       "Memory that all instances together may hold on this machine.",
       bytes([&draft](Bytes value) { draft.host_memory = value; }, 16_MiB)},

      {"limits.queue_per_model", "512",
       "Requests that wait for one model; more are refused with `queue_full`.",
       count(config.queue_per_model, 1, 1000000)},
      {"limits.queue_total", "4096", "Requests that wait for all models together.",
       count(config.queue_total, 1, 1000000)},
      {"limits.queue_timeout", "\"120s\"",
       "Longest wait for a model; then the request ends with `queue_timeout`.",
       duration(config.queue_timeout, 100ms, kDay)},
      {"limits.request_timeout", "\"10m\"",
       "Longest time from a request's start in the model to the end of its answer.",
       duration(config.request_timeout, 1s, kDay)},
      {"limits.header_timeout", "\"15s\"", "Longest time for a client to send a request's head.",
       duration(config.header_timeout, 100ms, 1h)},
      {"limits.idle_timeout", "\"75s\"",
       "A kept-alive connection without a request is closed after this time.",
       duration(config.idle_timeout, 100ms, kDay)},
      {"limits.shutdown_timeout", "\"30s\"",
       "Time that running requests get to end when the daemon stops.",
       duration(config.shutdown_timeout, 0s, 1h)},
      {"limits.json_body", "\"1MiB\"", "Largest JSON body that is held in memory.",
       bytes(config.json_body, 1_KiB)},
      {"limits.file_body", "\"1GiB\"", "Largest multipart or raw body; it is spooled to disk.",
       bytes(config.file_body, 1_KiB)},
      {"limits.body_memory", "\"256MiB\"", "Memory for all held bodies together.",
       bytes(config.body_memory, 1_MiB)},
  };
  add_gpu_keys(keys, config);
  keys.push_back({"keys",
                  "(none)",
                  "Keys of the API, one table each. With any, every request by TCP needs one.",
                  {"array of tables", {}},
                  [&config] { return key_element(config.keys); }});
  return keys;
}

void store_listen(NodeDraft& draft, KeyFile& file) {
  if (!file.has("listen")) return;
  draft.config.listen.clear();
  std::set<std::string> seen;
  for (const std::string& text : draft.listen) {
    Listen listen;
    parse_listen(text, listen);  // has been checked
    if (listen.port != 0 && !seen.insert(text).second) {
      file.add_problem("listen", fmt::format("\"{}\" is given twice", text));
    }
    const bool open = draft.config.keys.empty() && !draft.config.public_without_keys;
    if (open && !is_loopback(listen.host)) {
      file.add_problem(
          "listen",
          fmt::format("\"{}\" can be reached from other machines, which would need no key: add "
                      "[[keys]] (`omni key NAME` makes one), listen on 127.0.0.1 or [::1], or set "
                      "public_without_keys",
                      text));
    }
    draft.config.listen.push_back(listen);
  }
}

void check_keys(const NodeDraft& draft, KeyFile& file) {
  std::set<std::string_view> names;
  std::set<std::string_view> digests;
  for (std::size_t i = 0; i < draft.config.keys.size(); ++i) {
    const ApiKey& key = draft.config.keys[i];
    const std::string row = fmt::format("keys[{}]", i);
    if (!key.name.empty() && !names.insert(key.name).second) {
      file.add_problem(row + ".name", fmt::format("\"{}\" is given twice", key.name));
    }
    if (!key.sha256.empty() && !digests.insert(key.sha256).second) {
      file.add_problem(row + ".sha256", "is given twice: each key has one owner");
    }
  }
}

void store_models(NodeDraft& draft, KeyFile& file, const std::filesystem::path& folder) {
  if (!file.has("models")) return;
  draft.config.models.clear();
  for (const std::string& text : draft.models) {
    const std::filesystem::path path = (folder / text).lexically_normal();
    std::error_code status;
    if (!std::filesystem::is_directory(path, status)) {
      file.add_problem("models", fmt::format("{} is no folder", path.string()));
    }
    draft.config.models.push_back(path);
  }
}

// An absolute path in a variable, as the XDG base directory specification wants it.
std::optional<std::filesystem::path> path_in(const Environment& environment, const char* name) {
  const char* value = environment(name);
  if (value == nullptr || value[0] != '/') return std::nullopt;
  return std::filesystem::path(value);
}

}  // namespace

NodePaths NodePaths::below(const std::filesystem::path& root) {
  std::filesystem::path base = std::filesystem::absolute(root).lexically_normal();
  if (!base.has_filename()) base = base.parent_path();
  return {.config = base, .state = base / "state", .logs = base / "logs", .run = base / "run"};
}

NodePaths NodePaths::of_user() {
  return of_user(::geteuid(), [](const char* name) { return std::getenv(name); });
}

NodePaths NodePaths::of_user(std::uint32_t uid, const Environment& environment) {
  if (uid == 0) {
    return {.config = "/etc/omni",
            .state = "/var/lib/omni",
            .logs = "/var/log/omni",
            .run = "/run/omni"};
  }
  std::filesystem::path home = "/";
  if (auto variable = path_in(environment, "HOME")) {
    home = *variable;
  } else if (const passwd* user = ::getpwuid(uid); user != nullptr && user->pw_dir != nullptr) {
    home = user->pw_dir;
  }
  NodePaths paths;
  paths.config = path_in(environment, "XDG_CONFIG_HOME").value_or(home / ".config") / "omni";
  paths.state = path_in(environment, "XDG_STATE_HOME").value_or(home / ".local/state") / "omni";
  paths.logs = paths.state / "logs";
  const auto runtime = path_in(environment, "XDG_RUNTIME_DIR");
  paths.run = runtime ? *runtime / "omni" : std::filesystem::path(fmt::format("/tmp/omni-{}", uid));
  return paths;
}

Result<NodeConfig> load_node_config(const std::filesystem::path& file_path, bool must_exist) {
  const std::filesystem::path path = std::filesystem::absolute(file_path).lexically_normal();
  const Bytes machine = usable_machine_memory();
  NodeDraft draft;
  NodeConfig& config = draft.config;
  config.models = {path.parent_path() / "models"};
  config.host_memory = Bytes(machine.count() / 10 * 8);

  std::error_code status;
  if (!must_exist && !std::filesystem::exists(path, status) && !status) return config;

  TRY(KeyFile file, KeyFile::read(path, node_keys(draft)));
  store_listen(draft, file);
  check_keys(draft, file);
  store_models(draft, file, path.parent_path());
  if (draft.host_memory) {
    config.host_memory = *draft.host_memory;
    if (config.host_memory > machine) {
      file.add_problem("device.host.memory",
                       fmt::format("{} is more than the {} that this machine has",
                                   to_string(config.host_memory), to_string(machine)));
    }
  }
  if (config.queue_total < config.queue_per_model) {
    file.add_problem("limits.queue_total", fmt::format("{} is less than limits.queue_per_model, {}",
                                                       config.queue_total, config.queue_per_model));
  }
  if (config.body_memory < config.json_body) {
    file.add_problem("limits.body_memory",
                     fmt::format("{} is less than limits.json_body, {}",
                                 to_string(config.body_memory), to_string(config.json_body)));
  }
  CHECK(file.result());
  return std::move(config);
}

const std::vector<KeyDoc>& node_config_keys() {
  static const std::vector<KeyDoc> docs = [] {
    NodeDraft draft;
    return to_docs(node_keys(draft));
  }();
  return docs;
}

}  // namespace omni
