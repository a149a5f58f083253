#include "provision/uv.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <deque>

namespace omni {
namespace {

constexpr Duration kLongestRun = std::chrono::hours(1);  // gigabytes over a slow line
constexpr std::size_t kErrorLines = 20;
constexpr const char* kSystemCertificates = "/etc/ssl/certs/ca-certificates.crt";  // Debian's
constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

bool is_program(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::string get(const Variables& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

std::vector<std::filesystem::path> candidates(const std::string& path,
                                              const std::filesystem::path& state) {
  std::vector<std::filesystem::path> found;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find(':', from), path.size());
    // An empty or relative entry would take the program from the daemon's working directory.
    if (path[from] == '/')
      found.emplace_back(std::filesystem::path(path.substr(from, to - from)) / "uv");
    from = to + 1;
  }
  const std::filesystem::path tools = state.parent_path() / "tools";
  found.push_back(tools / "uv");
  found.push_back(tools / "bin/uv");
  return found;
}

}  // namespace

Variables process_environment() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> Uv::environment_for_uv(const Variables& environment,
                                                const std::filesystem::path& state) {
  Variables result{{"PATH", kPath}, {"LANG", "C.UTF-8"}, {"HOME", state.string()}};
  for (const auto& [name, value] : environment) {
    static constexpr std::array<std::string_view, 16> kPassed{
        "HOME",        "TMPDIR",        "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
        "NETRC",       "HTTP_PROXY",    "http_proxy",     "HTTPS_PROXY",
        "https_proxy", "ALL_PROXY",     "all_proxy",      "NO_PROXY",
        "no_proxy",    "SSL_CERT_FILE", "SSL_CERT_DIR",   "SSL_CLIENT_CERT"};
    const bool passed = std::find(kPassed.begin(), kPassed.end(), name) != kPassed.end();
    if (passed || name.starts_with("UV_")) {
      result[name] = value;
    }
  }
  // What is set for pip alone holds for uv too.
  struct Translation {
    const char* pip;
    const char* uv;
    std::vector<const char*> also_set_by;
  };
  const std::vector<Translation> translations{
      {"PIP_INDEX_URL", "UV_DEFAULT_INDEX", {"UV_DEFAULT_INDEX", "UV_INDEX_URL"}},
      {"PIP_EXTRA_INDEX_URL", "UV_INDEX", {"UV_INDEX", "UV_EXTRA_INDEX_URL"}},
      {"PIP_FIND_LINKS", "UV_FIND_LINKS", {"UV_FIND_LINKS"}},
      {"PIP_CERT", "SSL_CERT_FILE", {"SSL_CERT_FILE"}},
  };
  for (const Translation& row : translations) {
    const std::string value = get(environment, row.pip);
    const bool already = std::any_of(row.also_set_by.begin(), row.also_set_by.end(),
                                     [&](const char* name) { return environment.contains(name); });
    if (!value.empty() && !already) result[row.uv] = value;
  }
  // The system's certificates, where its administrator adds a company's own: by itself uv knows
  // only those it was built with.
  if (!result.contains("SSL_CERT_FILE") && !result.contains("SSL_CERT_DIR") &&
      ::access(kSystemCertificates, R_OK) == 0) {
    result["SSL_CERT_FILE"] = kSystemCertificates;
  }
  // An interpreter of uv's own would lie where instances cannot read it.
  result["UV_PYTHON_DOWNLOADS"] = "never";
  std::vector<std::string> list;
  for (const auto& [name, value] : result) list.push_back(name + "=" + value);
  return list;
}

Result<Uv> Uv::find(const Variables& environment, const std::filesystem::path& state) {
  const std::string chosen = get(environment, "OMNI_UV");
  if (!chosen.empty()) {
    if (chosen[0] != '/' || !is_program(chosen)) {
      return Error{
          ErrorCode::provision_failed,
          fmt::format("OMNI_UV is \"{}\", which is no program at an absolute path", chosen)};
    }
    return Uv(chosen, environment_for_uv(environment, state));
  }
  for (const std::filesystem::path& candidate : candidates(get(environment, "PATH"), state)) {
    if (is_program(candidate)) return Uv(candidate, environment_for_uv(environment, state));
  }
  const std::string tools = (state.parent_path() / "tools").string();
  return Error{
      ErrorCode::provision_failed,
      fmt::format("uv, which builds environments, is not found: install it with `{} -m venv "
                  "{} && {}/bin/pip install uv`, or name one in OMNI_UV",
                  kPython, tools, tools)};
}

asio::awaitable<Result<void>> Uv::run(std::vector<std::string> arguments, int lock,
                                      std::filesystem::path log, LineSink progress) const {
  Fd log_file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log_file) co_return errno_error("cannot open " + log.string());
  std::deque<std::string> last_lines;
  auto keep = [&](std::string_view line) {
    const std::string text = std::string(line) + "\n";
    // A full disk shows in uv's own work; the log is a help for people.
    [[maybe_unused]] const ssize_t written = ::write(log_file.get(), text.data(), text.size());
    if (line.empty()) return;
    last_lines.emplace_back(line);
    if (last_lines.size() > kErrorLines) last_lines.pop_front();
  };
  auto on_line = [&](std::string_view line) {
    keep(line);
    if (!line.empty()) progress(line);
  };

  ProcessSpec process{.argv = {program_.string()}, .env = env_, .inherited_fd = lock};
  process.argv.insert(process.argv.end(), arguments.begin(), arguments.end());
  process.argv.insert(process.argv.end(), {"--color", "never", "--no-progress"});
  const std::string command = fmt::format("{}", fmt::join(process.argv, " "));
  const std::string heading = "$ " + command + "\n";
  [[maybe_unused]] const ssize_t written = ::write(log_file.get(), heading.data(), heading.size());
  LineSink sink = on_line;
  CO_TRY(ExitStatus exit, co_await run_process(std::move(process), kLongestRun, std::move(sink)));
  if (exit.success()) co_return Result<void>();
  co_return Error{ErrorCode::provision_failed,
                  fmt::format("uv {} {} failed with {} (log: {}):\n{}", arguments[0], arguments[1],
                              to_string(exit), log.string(), fmt::join(last_lines, "\n"))};
}

}  // namespace omni
