// omni.toml as a value, and where a node keeps its files. Strict like model.toml (see
// model_spec.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "config/model_spec.h"

namespace omni {

// A variable of the process environment, or null.
using Environment = std::function<const char*(const char* name)>;

// docs/contracts/paths.md.
struct NodePaths {
  std::filesystem::path config;  // omni.toml and models/
  std::filesystem::path state;   // environments/ weights/ versions/ cache/ spool/
  std::filesystem::path logs;
  std::filesystem::path run;  // admin.sock, lock, i/ID/

  std::filesystem::path admin_socket() const { return run / "admin.sock"; }
  // All below one folder: --root.
  static NodePaths below(const std::filesystem::path& root);
  // Root: /etc/omni, /var/lib/omni, /var/log/omni, /run/omni. Others: XDG, /tmp/omni-UID for run
  // when XDG_RUNTIME_DIR is unset.
  static NodePaths of_user();
  static NodePaths of_user(std::uint32_t uid, const Environment& environment);

  bool operator==(const NodePaths&) const = default;
};

struct Listen {
  std::string host = "127.0.0.1";  // numeric address
  std::uint16_t port = 8484;

  bool operator==(const Listen&) const = default;
};

// Who may call: the key itself is known to its owner alone.
struct ApiKey {
  std::string name;    // for logs
  std::string sha256;  // of the key, lower-case hex

  bool operator==(const ApiKey&) const = default;
};

inline constexpr std::uint32_t kMostGpus = 16;

struct NodeConfig {
  std::vector<Listen> listen{{"127.0.0.1", 8484}, {"::1", 8484}};
  std::vector<std::string> cors_origins;
  std::vector<ApiKey> keys;                   // none: no request needs one
  bool public_without_keys = false;           // listen beyond loopback all the same
  std::uint32_t io_threads = 0;               // 0: one per core, at most 16
  std::vector<std::filesystem::path> models;  // model folders; default: <config>/models
  bool watch = true;                          // reload when a file of it or of a model changes
  std::uint32_t uid_first = 700000;           // uid_range, as root
  std::uint32_t uid_last = 799999;
  std::map<std::uint32_t, Bytes> gpu_memory;  // device.gpuN.memory, by N
  Bytes host_memory;  // device.host.memory; default: 80 % of the machine's memory

  // [limits]
  std::uint32_t queue_per_model = 512;
  std::uint32_t queue_total = 4096;
  Duration queue_timeout = std::chrono::seconds(120);
  Duration request_timeout = std::chrono::minutes(10);
  Duration header_timeout = std::chrono::seconds(15);
  Duration idle_timeout = std::chrono::seconds(75);      // keep-alive connection without a request
  Duration shutdown_timeout = std::chrono::seconds(30);  // TERM until requests are cut
  Bytes json_body = Bytes(1 << 20);
  Bytes file_body = Bytes(std::int64_t{1} << 30);  // multipart and raw bodies, spooled
  Bytes body_memory = Bytes(256 << 20);            // all held bodies together

  bool operator==(const NodeConfig&) const = default;
};

// A missing file is the default config when `must_exist` is false.
Result<NodeConfig> load_node_config(const std::filesystem::path& file, bool must_exist);
const std::vector<KeyDoc>& node_config_keys();

}  // namespace omni
