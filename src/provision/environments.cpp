#include "provision/environments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "base/fd.h"
#include "base/files.h"
#include "provision/digest.h"
#include "provision/file_lock.h"
#include "provision/files.h"
#include "provision/workers.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLongestBuild = 1h;  // as long as a build may take
constexpr const char* kMarker = ".complete";

bool is_complete(const std::filesystem::path& dir, const std::string& hash) {
  auto marker = read_file(dir / kMarker);
  return marker.ok() && *marker == hash + "\n" && ::access((dir / "bin/python").c_str(), X_OK) == 0;
}

// The environment's name is the hash of this file, so what it means must be in it.
Result<void> refuse_includes(const std::filesystem::path& file, const std::string& content) {
  std::istringstream lines(content);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::size_t start = line.find_first_not_of(" \t");
    if (start == std::string::npos) continue;
    const std::string_view rest = std::string_view(line).substr(start);
    for (std::string_view option :
         {"-r", "-c", "-e", "--requirement", "--constraint", "--editable"}) {
      if (!rest.starts_with(option)) continue;
      // "-rfile" is as good as "-r file"; "--requirements-x" is no such option.
      const std::string_view after = rest.substr(option.size());
      const bool is_option =
          !option.starts_with("--") || after.empty() || after[0] == ' ' || after[0] == '=';
      if (!is_option) continue;
      return Error{ErrorCode::provision_failed,
                   fmt::format("{}:{}: {} is not allowed: the file must be complete in itself, "
                               "since its content names the environment",
                               file.string(), number, option)};
    }
  }
  return {};
}

std::vector<std::string> install_arguments(const EnvironmentRecipe& recipe,
                                           const std::filesystem::path& dir) {
  // Bytecode now: instances see the environment read-only and would compile at each start. Only
  // wheels: building from source runs foreign code.
  std::vector<std::string> arguments{"pip",
                                     "install",
                                     "--python",
                                     (dir / "bin/python").string(),
                                     "--compile-bytecode",
                                     "--only-binary",
                                     ":all:",
                                     "-r",
                                     (dir / "requirements.txt").string()};
  if (recipe.is_lock()) arguments.insert(arguments.end(), {"--require-hashes", "--no-deps"});
  if (!recipe.overrides.empty()) {
    arguments.insert(arguments.end(), {"--override", (dir / "overrides.txt").string()});
  }
  if (!recipe.index.empty()) {
    arguments.insert(arguments.end(), {"--default-index", recipe.index});
  }
  return arguments;
}

Result<void> write_inputs(const EnvironmentRecipe& recipe, const std::filesystem::path& dir) {
  CHECK(write_file_atomic(dir / "requirements.txt", recipe.requirements));
  if (!recipe.overrides.empty()) {
    CHECK(write_file_atomic(dir / "overrides.txt", recipe.overrides));
  }
  return {};
}

Result<void> finish(const std::filesystem::path& dir, const std::string& hash) {
  if (::access((dir / "bin/python").c_str(), X_OK) != 0) {
    return errno_error(fmt::format("uv left no {}/bin/python", dir.string()));
  }
  CHECK(make_readable(dir));
  CHECK(sync_file_system(dir));  // the marker must not outlive a power cut that the rest did not
  return write_file_atomic(dir / kMarker, hash + "\n");
}

asio::awaitable<Result<void>> install(asio::thread_pool& workers, Uv uv, EnvironmentRecipe recipe,
                                      std::filesystem::path dir, std::filesystem::path log,
                                      int lock, LineSink progress) {
  std::vector<std::string> create{"venv", dir.string(), "--python", recipe.interpreter};
  CO_CHECK(co_await uv.run(std::move(create), lock, log, progress));
  auto write = [recipe, dir] { return write_inputs(recipe, dir); };
  CO_CHECK(co_await on_workers(workers, write));
  std::vector<std::string> arguments = install_arguments(recipe, dir);
  CO_CHECK(co_await uv.run(std::move(arguments), lock, log, progress));
  auto complete = [recipe, dir] { return finish(dir, recipe.hash()); };
  auto finished = co_await on_workers(workers, complete);
  co_return finished;
}

}  // namespace

bool EnvironmentRecipe::is_lock() const {
  std::istringstream lines(requirements);
  for (std::string line; std::getline(lines, line);) {
    if (line.substr(0, line.find('#')).find("--hash=") != std::string::npos) return true;
  }
  return false;
}

std::string EnvironmentRecipe::hash() const {
  Sha256 hash;
  // The flags of install_arguments() in one word: change it when they change.
  hash.field("environment 1: binary, bytecode");
  hash.field(python);
  hash.field(requirements);
  hash.field(overrides);
  if (!index.empty()) hash.field(index);
  return hash.finish();
}

Result<EnvironmentRecipe> read_recipe(const std::filesystem::path& requirements,
                                      const std::filesystem::path& overrides, std::string python) {
  EnvironmentRecipe recipe;
  recipe.python = std::move(python);
  TRY(recipe.requirements, read_file(requirements));
  CHECK(refuse_includes(requirements, recipe.requirements));
  if (overrides.empty()) return recipe;
  if (recipe.is_lock()) {
    return Error{ErrorCode::provision_failed,
                 fmt::format("{} is a lock (it has hashes), so nothing is resolved and {} means "
                             "nothing: remove engine.overrides",
                             requirements.string(), overrides.string())};
  }
  TRY(recipe.overrides, read_file(overrides));
  CHECK(refuse_includes(overrides, recipe.overrides));
  return recipe;
}

Environments::Environments(asio::io_context& loop, asio::thread_pool& workers,
                           std::filesystem::path state, Variables variables)
    : workers_(workers),
      state_(std::move(state)),
      variables_(std::move(variables)),
      builds_(loop) {}

asio::awaitable<Result<std::filesystem::path>> Environments::get(EnvironmentRecipe recipe,
                                                                 LineSink progress) {
  const std::string hash = recipe.hash();
  const std::filesystem::path dir = state_ / "environments" / hash;
  auto check = [dir, hash]() -> Result<bool> { return is_complete(dir, hash); };
  CO_TRY(bool complete, co_await on_workers(workers_, check));
  if (complete) co_return dir;
  SharedJobs::Job job = [&workers = workers_, state = state_, variables = variables_,
                         recipe](LineSink tell) {
    return build(workers, state, variables, recipe, std::move(tell));
  };
  auto built = co_await builds_.run(hash, std::move(progress), std::move(job));
  co_return built;
}

asio::awaitable<Result<std::filesystem::path>> Environments::build(asio::thread_pool& workers,
                                                                   std::filesystem::path state,
                                                                   Variables variables,
                                                                   EnvironmentRecipe recipe,
                                                                   LineSink progress) {
  const std::string hash = recipe.hash();
  const std::filesystem::path root = state / "environments";
  const std::filesystem::path dir = root / hash;
  const std::filesystem::path log = root / (hash + ".log");
  CO_TRY(Uv uv, Uv::find(variables, state));

  auto make_root = [root] { return make_directories(root); };
  CO_CHECK(co_await on_workers(workers, make_root));
  CO_TRY(Fd lock, co_await lock_file(root / (hash + ".lock"), kLongestBuild, progress));
  // Another process may have built it while this one waited.
  auto wipe_unless_complete = [dir, log, hash]() -> Result<bool> {
    if (is_complete(dir, hash)) return true;
    CHECK(remove_tree(dir));
    ::unlink(log.c_str());
    return false;
  };
  CO_TRY(bool complete, co_await on_workers(workers, wipe_unless_complete));
  if (complete) co_return dir;

  auto installed = co_await install(workers, uv, recipe, dir, log, lock.get(), progress);
  if (installed.ok()) co_return dir;
  auto wipe = [dir] { return remove_tree(dir); };
  auto wiped = co_await on_workers(workers, wipe);
  // What could not be removed is wiped by the next build; the first error is the one to tell.
  if (!wiped.ok()) progress(wiped.error().message);
  co_return installed.error();
}

}  // namespace omni
