#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "cli/host_facts.h"

namespace omni::cli {
namespace {

// Two descriptors a connection at the server's limit of 10,000, engines' connections and files.
constexpr std::uint64_t kEnoughFiles = 32'768;
constexpr std::uint64_t kFewestFiles = 1'024;

std::string reason(int error) { return std::generic_category().message(error); }

Finding judge_program(std::string name, const std::optional<std::filesystem::path>& found,
                      Health if_missing, std::string why, std::string fix) {
  if (found) return {std::move(name), Health::ok, *found, std::move(why), {}};
  return {std::move(name), if_missing, "not found", std::move(why), std::move(fix)};
}

Finding judge_namespaces(const HostFacts& facts) {
  Finding finding{.check = "namespaces", .why = "isolate instances and end all their processes"};
  if (facts.namespaces_error == 0) {
    finding.found = facts.root_user ? "work" : "work, in a user namespace";
    return finding;
  }
  finding.health = Health::warning;
  finding.found = reason(facts.namespaces_error);
  finding.fix = facts.root_user
                    ? "give the container CAP_SYS_ADMIN; without it process trees are ended one "
                      "process at a time"
                    : "allow them: sysctl kernel.unprivileged_userns_clone=1 and "
                      "user.max_user_namespaces=15000; without them process trees are ended one "
                      "process at a time";
  return finding;
}

Finding judge_cgroup(const HostFacts& facts) {
  Finding finding{.check = "cgroup", .why = "limit memory and CPU of instances"};
  const std::string_view version = facts.cgroup == CgroupVersion::v2   ? "v2"
                                   : facts.cgroup == CgroupVersion::v1 ? "v1"
                                                                       : "none";
  finding.found = fmt::format("{}{}", version, facts.cgroup_writable ? "" : ", not writable");
  if (facts.cgroup_writable) return finding;
  finding.health = Health::warning;
  finding.fix = facts.root_user ? "mount /sys/fs/cgroup writable in this container"
                                : "run omni as a systemd unit with Delegate=yes";
  return finding;
}

Finding judge_open_files(const HostFacts& facts) {
  Finding finding{.check = "open files",
                  .found = fmt::format("at most {}", facts.open_files),
                  .why = "each connection and log is one"};
  if (facts.open_files >= kEnoughFiles) return finding;
  finding.health = facts.open_files < kFewestFiles ? Health::problem : Health::warning;
  finding.fix = fmt::format("raise the hard limit to {}: LimitNOFILE= of the unit, or ulimit -Hn",
                            kEnoughFiles);
  return finding;
}

Finding judge_memory(const HostFacts& facts) {
  Finding finding{
      .check = "memory",
      .found = fmt::format("{} of {} free, {} for models", to_string(facts.memory_available),
                           to_string(facts.memory_total), to_string(facts.host_budget)),
      .why = "models share the budget of the host device"};
  if (facts.host_budget > facts.memory_available && facts.daemon_error) {
    finding.health = Health::warning;
    finding.fix = "end other programs, or set device.host.memory in omni.toml to what is free";
  }
  return finding;
}

Finding judge_config(const HostFacts& facts) {
  Finding finding{.check = "config", .found = "valid", .why = "the daemon refuses a wrong one"};
  if (facts.config_error) {
    finding.health = Health::problem;
    finding.found = facts.config_error->message;
    finding.fix = "correct the lines that `omni check` names";
  }
  return finding;
}

Finding judge_address(const HostFacts& facts, const HostFacts::Address& address) {
  Finding finding{.check = "address", .why = "clients connect to it"};
  finding.found = address.text + " is free";
  if (address.error == 0) return finding;
  if (address.error == EADDRINUSE && !facts.daemon_error) {
    finding.found = address.text + " is in use, and a daemon runs";
    return finding;
  }
  finding.found = fmt::format("{}: {}", address.text, reason(address.error));
  finding.health = address.error == EADDRNOTAVAIL ? Health::warning : Health::problem;
  finding.fix = "end the program that has it, or set listen in omni.toml";
  return finding;
}

Finding judge_run_folder(const HostFacts& facts) {
  Finding finding{.check = "run folder",
                  .found = facts.run_folder,
                  .why = "holds the admin socket and those of instances"};
  if (facts.socket_path_length > facts.socket_path_limit) {
    finding.health = Health::problem;
    finding.found += fmt::format(" makes a socket path of {} bytes", facts.socket_path_length);
    finding.fix = fmt::format("choose a --root whose socket paths have at most {} bytes",
                              facts.socket_path_limit);
  } else if (!facts.run_folder_own) {
    finding.health = Health::problem;
    finding.found += facts.run_folder_exists ? " is not this user's" : " cannot be made";
    finding.fix = "set XDG_RUNTIME_DIR, use --root, or run as the user who owns it";
  } else if (!facts.run_folder_private) {
    finding.health = Health::problem;
    finding.found += " can be written by others";
    finding.fix = fmt::format("chmod 700 {}", facts.run_folder.string());
  } else if (!facts.run_folder_exists) {
    finding.found += " will be made";
  }
  return finding;
}

Finding judge_daemon(const HostFacts& facts) {
  Finding finding{.check = "daemon", .why = "every other command talks to it"};
  if (!facts.daemon_error) {
    finding.found = "answers at " + facts.daemon_socket;
    return finding;
  }
  finding.health = Health::warning;
  finding.found = "not running";
  finding.fix = facts.daemon_error->message;
  return finding;
}

}  // namespace

std::string_view to_string(Health health) {
  switch (health) {
    case Health::ok:
      return "ok";
    case Health::warning:
      return "warning";
    case Health::problem:
      return "problem";
  }
  return "problem";
}

std::vector<Finding> judge(const HostFacts& facts) {
  std::vector<Finding> findings{
      judge_program("uv", facts.uv, Health::warning, "builds the environments of models",
                    "install it: https://docs.astral.sh/uv (pip install uv)"),
      judge_program("curl", facts.curl, Health::warning, "downloads the weights of models",
                    "install it: apt install curl"),
      judge_program("python3", facts.python3, Health::warning, "runs Python handlers",
                    "install it: apt install python3"),
      judge_program("omni-shim", facts.shim, Health::problem, "starts and supervises instances",
                    "install omni whole: bin/omni needs ../lib/omni/omni-shim"),
      judge_namespaces(facts),
      judge_cgroup(facts),
      judge_open_files(facts),
      judge_memory(facts),
      judge_config(facts),
  };
  for (const HostFacts::Address& address : facts.listen) {
    findings.push_back(judge_address(facts, address));
  }
  findings.push_back(judge_run_folder(facts));
  findings.push_back(judge_daemon(facts));
  return findings;
}

}  // namespace omni::cli
