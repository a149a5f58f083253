#include "provision/interpreters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "provision/process.h"
#include "provision/programs.h"

namespace omni {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// "python3.11", and not "python3.11-config".
bool is_interpreter_name(std::string_view name) {
  constexpr std::string_view kStart = "python3.";
  return name.starts_with(kStart) && name.size() > kStart.size() &&
         name.find_first_not_of("0123456789", kStart.size()) == std::string_view::npos;
}

// In the order of the folders, the newest of a folder first.
std::vector<fs::path> installed(const std::vector<fs::path>& folders) {
  std::vector<fs::path> all;
  for (const fs::path& folder : folders) {
    std::vector<fs::path> here;
    std::error_code status;
    fs::directory_iterator entry(folder, status);
    for (; !status && entry != fs::directory_iterator(); entry.increment(status)) {
      if (is_interpreter_name(entry->path().filename().string()) && is_program(entry->path())) {
        here.push_back(entry->path());
      }
    }
    std::sort(here.begin(), here.end(), [](const fs::path& a, const fs::path& b) {
      const std::size_t x = a.string().size();
      const std::size_t y = b.string().size();
      return x == y ? a > b : x > y;  // 3.11 is newer than 3.9
    });
    all.insert(all.end(), here.begin(), here.end());
  }
  return all;
}

Error not_running(const fs::path& path, std::string_view why) {
  const std::string advice = path == "/usr/bin/python3"
                                 ? "install it, on Debian with `apt install python3`"
                                 : "correct engine.python";
  return {ErrorCode::provision_failed,
          fmt::format("{} does not run ({}): {}", path.string(), why, advice)};
}

}  // namespace

std::vector<fs::path> interpreter_folders() {
  std::vector<fs::path> folders{"/usr/bin", "/usr/local/bin"};
  std::error_code status;
  fs::directory_iterator entry("/opt", status);
  for (; !status && entry != fs::directory_iterator(); entry.increment(status)) {
    folders.push_back(entry->path() / "bin");
  }
  std::sort(folders.begin() + 2, folders.end());
  return folders;
}

asio::awaitable<Result<Interpreter>> Interpreters::describe(fs::path path) {
  std::error_code status;
  const fs::path key = path.string() + "\n" + fs::canonical(path, status).string();
  if (const auto known = known_.find(key); known != known_.end()) co_return known->second;
  std::string line;
  LineSink keep = [&line](std::string_view text) { line = text; };
  ProcessSpec process{
      .argv = {path.string(), "-I", "-c",
               "import sys, sysconfig; print(sys.implementation.name, *sys.version_info[:3], "
               "sysconfig.get_platform())"},
      .env = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}};
  auto ran = co_await run_process(std::move(process), 30s, std::move(keep));
  if (!ran.ok()) co_return not_running(path, ran.error().message);
  if (!ran->success()) co_return not_running(path, line.empty() ? to_string(*ran) : line);
  int major = 0;
  int minor = 0;
  int patch = 0;
  if (std::sscanf(line.c_str(), "%*s %d %d %d", &major, &minor, &patch) != 3) {  // NOLINT: checked
    co_return not_running(path, "it tells no version");
  }
  Interpreter interpreter{.path = path,
                          .version = fmt::format("{}.{}.{}", major, minor, patch),
                          .description = fmt::format("{}\n{}\n", path.string(), line)};
  known_.emplace(key, interpreter);
  co_return interpreter;
}

asio::awaitable<Result<Interpreter>> Interpreters::find(std::string wanted) {
  if (wanted.starts_with('/')) {
    auto described = co_await describe(wanted);
    co_return described;
  }
  std::vector<std::string> found;
  for (const fs::path& path : installed(folders_)) {
    // One that does not run is as good as not there.
    auto described = co_await describe(path);
    if (!described.ok()) continue;
    const std::string& version = described->version;
    if (version == wanted || version.starts_with(wanted + ".")) co_return described;
    found.push_back(fmt::format("{} ({})", version, path.string()));
  }
  co_return Error{
      ErrorCode::provision_failed,
      fmt::format("Python {} is not installed: install it, or choose another by engine.python; "
                  "there is {}",
                  wanted, found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", ")))};
}

}  // namespace omni
