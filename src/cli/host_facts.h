// What `omni doctor` looks at on this machine. Gathered in one place and judged in another, so that
// the judgement can be tested for machines that are not this one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "config/node_config.h"

namespace omni::cli {

enum class CgroupVersion : std::uint8_t { none, v1, v2 };

struct HostFacts {
  bool root_user = false;
  std::optional<std::filesystem::path> uv;
  std::optional<std::filesystem::path> curl;
  std::optional<std::filesystem::path> python3;
  std::optional<std::filesystem::path> shim;  // omni-shim of this installation
  int namespaces_error = 0;                   // error number of the attempt; 0: they work
  CgroupVersion cgroup = CgroupVersion::none;
  bool cgroup_writable = false;
  std::uint64_t open_files = 0;  // hard limit; the daemon raises its own up to it
  Bytes memory_total;
  Bytes memory_available;

  std::optional<Error> config_error;
  Bytes host_budget;  // device.host.memory
  struct Address {
    std::string text;
    int error = 0;  // of binding to it
  };
  std::vector<Address> listen;

  std::filesystem::path run_folder;
  bool run_folder_exists = false;
  bool run_folder_own = false;      // or, while it does not exist, can be made
  bool run_folder_private = false;  // closed to others
  std::size_t socket_path_limit = 107;
  std::size_t socket_path_length = 0;

  std::optional<Error> daemon_error;  // none: a daemon answers
  std::string daemon_socket;
};

HostFacts gather_host_facts(const NodePaths& paths, const std::string& socket,
                            const std::string& root);

enum class Health : std::uint8_t { ok, warning, problem };
std::string_view to_string(Health health);

struct Finding {
  std::string check;
  Health health = Health::ok;
  std::string found;
  std::string why;  // it matters
  std::string fix;  // empty when nothing is to be done
};

std::vector<Finding> judge(const HostFacts& facts);

}  // namespace omni::cli
