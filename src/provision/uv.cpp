#include "provision/uv.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

namespace omni {
namespace {

constexpr Duration kLongestRun = std::chrono::hours(1);  // gigabytes over a slow line
constexpr std::size_t kErrorLines = 20;

}  // namespace

std::vector<std::string> Uv::environment_for_uv(const Variables& environment,
                                                const std::filesystem::path& state) {
  Variables result = network_environment(environment, state);
  for (const auto& [name, value] : environment) {
    if (name.starts_with("UV_")) result[name] = value;
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
  };
  for (const Translation& row : translations) {
    const std::string value = variable(environment, row.pip);
    const bool already = std::any_of(row.also_set_by.begin(), row.also_set_by.end(),
                                     [&](const char* name) { return environment.contains(name); });
    if (!value.empty() && !already) result[row.uv] = value;
  }
  // An interpreter of uv's own would lie where instances cannot read it.
  result["UV_PYTHON_DOWNLOADS"] = "never";
  return as_list(result);
}

Result<Uv> Uv::find(const Variables& environment, const std::filesystem::path& state) {
  const std::string chosen = variable(environment, "OMNI_UV");
  if (!chosen.empty()) {
    if (chosen[0] != '/' || !is_program(chosen)) {
      return Error{
          ErrorCode::provision_failed,
          fmt::format("OMNI_UV is \"{}\", which is no program at an absolute path", chosen)};
    }
    return Uv(chosen, environment_for_uv(environment, state));
  }
  const std::filesystem::path tools_folder = state.parent_path() / "tools";
  for (const std::filesystem::path& candidate :
       {find_on_path(environment, "uv"), tools_folder / "uv", tools_folder / "bin/uv"}) {
    if (is_program(candidate)) return Uv(candidate, environment_for_uv(environment, state));
  }
  const std::string tools = tools_folder.string();
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
