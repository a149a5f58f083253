#include "node/launch.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/json.hpp>
#include <cmath>

#include "base/fd.h"
#include "config/placeholders.h"

namespace omni::node {
namespace {

// The kernel's choice. It is free again until the engine binds it: an engine that loses that race
// fails its start, and the next start gets another port.
Result<std::uint16_t> free_port() {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, size) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    return errno_error("cannot find a free port on 127.0.0.1");
  }
  return ntohs(address.sin_port);
}

int thread_count(const ModelSpec& spec) {
  return std::max(1, static_cast<int>(std::ceil(spec.cpus)));
}

// Where an interpreter has its library: the folder over its bin. Nothing for the system's, which
// every instance sees anyway.
std::filesystem::path home_of(const std::filesystem::path& python) {
  const std::filesystem::path bin = python.parent_path();
  const std::filesystem::path home = bin.filename() == "bin" ? bin.parent_path() : python;
  const bool of_system = home == "/" || home == "/usr" || home == "/usr/local";
  return of_system ? std::filesystem::path() : home;
}

// Of the interpreter and of all that it leads to: an environment's Python is a link to the one that
// it was made with, and that may be a link too.
std::vector<std::filesystem::path> homes_of(std::filesystem::path python) {
  constexpr int kMostLinks = 16;
  std::vector<std::filesystem::path> homes;
  std::error_code status;
  for (int links = 0; links < kMostLinks; ++links) {
    if (auto home = home_of(python); !home.empty()) homes.push_back(std::move(home));
    const std::filesystem::path target = std::filesystem::read_symlink(python, status);
    if (status) break;
    python = (python.parent_path() / target).lexically_normal();
  }
  return homes;
}

Result<std::map<std::string, std::string>> environment(const LaunchContext& context,
                                                       const ModelSpec& spec,
                                                       const Provisioned& provisioned,
                                                       const std::filesystem::path& cache,
                                                       const PlaceholderValues& values) {
  std::string path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  if (!provisioned.env_dir.empty()) path = (provisioned.env_dir / "bin").string() + ":" + path;
  std::map<std::string, std::string> env{
      {"PATH", path},
      {"HOME", cache.string()},
      {"XDG_CACHE_HOME", cache.string()},
      {"LANG", "C.UTF-8"},
      {"OMNI_MODEL", spec.name},
      // onnxruntime 1.29 and later phones home on Linux unless told not to.
      {"ORT_DISABLE_TELEMETRY", "1"}};
  const std::string threads = std::to_string(thread_count(spec));
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
                           "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"}) {
    env[name] = threads;
  }
  if (context.visible_gpus) env["CUDA_VISIBLE_DEVICES"] = *context.visible_gpus;
  if (spec.python) {
    env["PYTHONPATH"] = context.python_path.string();
    env["PYTHONUNBUFFERED"] = "1";
  }
  for (const auto& [name, value] : spec.env) {
    TRY(env[name], fill_placeholders(value, values));
  }
  return env;
}

std::vector<std::string> python_command(const ModelSpec& spec, const Provisioned& provisioned,
                                        InstanceId instance, const std::filesystem::path& cache) {
  boost::json::object weights;
  for (const auto& [name, path] : provisioned.weights) weights[name] = path.string();
  const boost::json::object settings{{"model", spec.name},
                                     {"task", to_string(spec.task)},
                                     {"instance", to_string(instance)},
                                     {"model_dir", spec.dir.string()},
                                     {"handler", spec.python->handler},
                                     {"preload", boost::json::value_from(spec.python->preload)},
                                     {"concurrency", spec.concurrency},
                                     {"weights", std::move(weights)},
                                     {"cache_dir", cache.string()}};
  return {provisioned.python.string(), "-m", "omni_runtime", boost::json::serialize(settings)};
}

std::vector<LaunchPlan::Reach> reach(const LaunchContext& context, const ModelSpec& spec,
                                     const Provisioned& provisioned, const LaunchPlan& plan,
                                     const std::filesystem::path& cache) {
  std::vector<LaunchPlan::Reach> paths{{spec.dir, false}, {cache, true}, {plan.run_dir, true}};
  if (!provisioned.env_dir.empty()) paths.push_back({provisioned.env_dir, false});
  if (spec.python || !provisioned.env_dir.empty()) {
    for (const auto& home : homes_of(provisioned.python)) {
      if (home != provisioned.env_dir) paths.push_back({home, false});
    }
  }
  for (const auto& [name, path] : provisioned.weights) paths.push_back({path, false});
  if (spec.python) paths.push_back({context.python_path, false});
  const std::filesystem::path program = plan.argv.front();
  std::error_code ignored;
  if (spec.command && program.is_absolute() && std::filesystem::exists(program, ignored))
    paths.push_back({program, false});
  return paths;
}

}  // namespace

std::filesystem::path cache_dir(const NodePaths& paths, const ModelSpec& spec,
                                const Provisioned& provisioned) {
  return paths.state / "cache" / spec.name / provisioned.version;
}

std::filesystem::path log_file(const NodePaths& paths, std::string_view model,
                               std::uint32_t number) {
  const std::string suffix = number == 0 ? "" : fmt::format("#{}", number + 1);
  return paths.logs / fmt::format("{}{}.log", model, suffix);
}

Result<LaunchPlan> make_launch_plan(const LaunchContext& context, const ModelSpec& spec,
                                    const Provisioned& provisioned, InstanceId instance) {
  const auto cache = cache_dir(context.paths, spec, provisioned);
  LaunchPlan plan;
  plan.id = instance;
  plan.model = spec.name;
  plan.working_directory = spec.dir;
  plan.run_dir = context.paths.run / "i" / to_string(instance);
  plan.log_file = log_file(context.paths, spec.name, context.log_number);
  plan.uid = context.uid;
  plan.load_stall = spec.load_stall;
  plan.stop_grace = spec.stop_grace;

  PlaceholderValues values{{"model_dir", spec.dir.string()},
                           {"env_dir", provisioned.env_dir.string()},
                           {"memory", std::to_string(spec.memory.value_or(Bytes()).count() >> 20)},
                           {"threads", std::to_string(thread_count(spec))}};
  for (const auto& [name, path] : provisioned.weights) values["weights." + name] = path.string();

  if (spec.python) {
    plan.python = true;
    plan.endpoint = Endpoint::unix_at((plan.run_dir / "model.sock").string());
    plan.argv = python_command(spec, provisioned, instance, cache);
  } else {
    if (spec.command->uses_socket) {
      plan.endpoint = Endpoint::unix_at((plan.run_dir / "engine.sock").string());
      values["socket"] = plan.endpoint.path;
    } else {
      TRY(const std::uint16_t port, free_port());
      plan.endpoint = Endpoint::tcp_at("127.0.0.1", port);
      values["port"] = std::to_string(port);
    }
    plan.ready_path = spec.command->ready_path;
    for (const std::string& word : spec.command->command) {
      TRY(std::string filled, fill_placeholders(word, values));
      plan.argv.push_back(std::move(filled));
    }
  }
  TRY(plan.env, environment(context, spec, provisioned, cache, values));
  plan.reach = reach(context, spec, provisioned, plan, cache);
  return plan;
}

}  // namespace omni::node
