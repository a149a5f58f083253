// Helper programs that the daemon runs but does not ship, uv and curl: where they are, and the
// clean environment that they get.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace omni {

using Variables = std::map<std::string, std::string>;

// This process's environment, by name.
Variables process_environment();
// Empty if it is not set.
std::string variable(const Variables& environment, const std::string& name);

bool is_program(const std::filesystem::path& path);
// The program of this name in the absolute folders of PATH: an empty or relative one would take it
// from the daemon's working directory. Empty path: there is none.
std::filesystem::path find_on_path(const Variables& environment, std::string_view name);

// Nothing of the daemon's environment but what says how to reach a server: proxies, certificates,
// home and temporary folders. Certificates are the system's where none are named.
Variables network_environment(const Variables& environment, const std::filesystem::path& home);
// "NAME=VALUE" for a process.
std::vector<std::string> as_list(const Variables& environment);

}  // namespace omni
