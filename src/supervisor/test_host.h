// What the supervisor's tests share: a loop, a spawner, a folder, and looks into processes.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/fd.h"
#include "supervisor/instance.h"
#include "supervisor/process_tree.h"

namespace omni {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// Far above what anything here takes on a loaded machine; reached only by a hang.
inline constexpr auto kTestPatience = 30s;

inline std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A pidfd, so that a reused pid is not mistaken for the process.
inline Fd handle_of(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }
inline bool has_ended(const Fd& handle, std::chrono::milliseconds patience = 0ms) {
  pollfd entry{handle.get(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(patience.count())) > 0;
}

inline pid_t parent_of(pid_t pid) {
  const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos ? 0 : std::atoi(stat.c_str() + name_end + 4);
}

inline std::uint16_t free_port(int family) {
  const Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = static_cast<sa_family_t>(family);
  socklen_t size = family == AF_INET6 ? sizeof address : sizeof(sockaddr_in);
  ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);
}

class TestHost {
 public:
  explicit TestHost(bool namespaces = true) {
    char name[] = "/tmp/omni-sup-XXXXXX";
    folder = ::mkdtemp(name);
    ::chmod(name, 0755);
    // Where any user can read it, wherever the sources lie.
    fs::copy_file(OMNI_FAKE_ENGINE, folder / "engine.py");
    Spawner::Options options{.namespaces = namespaces};
    auto started = Spawner::start(OMNI_SHIM, options);
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().message);
    if (started.ok()) spawner = *std::move(started);
  }
  ~TestHost() {
    workers.join();
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  // Runs the loop until the coroutine has ended.
  template <typename T>
  T run(asio::awaitable<T> work) {
    std::optional<T> result;
    asio::co_spawn(loop, std::move(work), [&](std::exception_ptr failure, T value) {
      if (failure) std::rethrow_exception(failure);
      result.emplace(std::move(value));
    });
    run_until([&] { return result.has_value(); });
    if (!result) throw std::runtime_error("the coroutine did not end in time");
    return std::move(*result);
  }

  // Runs the loop until the condition holds; false when it does not in time.
  template <typename Condition>
  bool run_until(Condition condition, Duration patience = kTestPatience) {
    const TimePoint deadline = Clock::now() + patience;
    while (!condition() && Clock::now() < deadline) {
      loop.restart();
      loop.run_one_for(5ms);
    }
    return condition();
  }

  LaunchPlan plan(std::vector<std::string> argv) {
    const std::string id = std::to_string(next_id++);
    LaunchPlan plan;
    plan.id = InstanceId{next_id};
    plan.model = "fake";
    plan.argv = std::move(argv);
    plan.env["PATH"] = "/usr/bin:/bin";
    plan.working_directory = "/";
    plan.run_dir = folder / "i" / id;
    plan.log_file = folder / "logs" / (id + ".log");
    plan.endpoint = Endpoint::unix_at((plan.run_dir / "engine.sock").string());
    plan.stop_grace = 300ms;
    return plan;
  }
  LaunchPlan shell(const std::string& script) { return plan({"/bin/sh", "-c", script}); }
  LaunchPlan python(const std::string& script) { return plan({"python3", "-c", script}); }

  // tests/fakes/engine.py at the plan's endpoint.
  LaunchPlan engine(const std::vector<std::string>& flags = {}) {
    LaunchPlan made = plan({"python3", folder / "engine.py"});
    made.argv.insert(made.argv.end(), {"--socket", made.endpoint.path});
    made.argv.insert(made.argv.end(), flags.begin(), flags.end());
    return made;
  }

  Result<std::shared_ptr<Instance>> try_start(LaunchPlan plan) {
    std::optional<Result<std::shared_ptr<Instance>>> result;
    asio::co_spawn(loop, try_start_task(std::move(plan), result), asio::detached);
    run_until([&] { return result.has_value(); });
    return std::move(result.value());
  }
  std::shared_ptr<Instance> start(LaunchPlan plan) {
    auto started = try_start(std::move(plan));
    if (!started.ok()) throw std::runtime_error(started.error().message);
    return *std::move(started);
  }
  Result<void> wait_ready(const std::shared_ptr<Instance>& instance) {
    return run(instance->wait_ready());
  }
  ExitReport wait_exit(const std::shared_ptr<Instance>& instance) {
    return run(instance->wait_exit());
  }
  ExitReport stop(const std::shared_ptr<Instance>& instance) { return run(instance->stop()); }

  // Both throw for an instance that has ended: 0 is no process to signal.
  pid_t main_of(const std::shared_ptr<Instance>& instance) {
    const pid_t pid = run(instance->usage(false)).main_pid;
    if (pid <= 0) throw std::runtime_error("the instance has ended already");
    return pid;
  }
  pid_t shim_of(const std::shared_ptr<Instance>& instance) {
    const pid_t pid = parent_of(main_of(instance));
    if (pid <= 1) throw std::runtime_error("the instance has ended already");
    return pid;
  }
  // Every process of the instance but the shim.
  std::vector<Fd> handles_of(const std::shared_ptr<Instance>& instance) {
    std::vector<Fd> handles;
    for (const pid_t pid : descendants(shim_of(instance))) handles.push_back(handle_of(pid));
    return handles;
  }
  bool log_has(const LaunchPlan& plan, std::string_view text) {
    return run_until([&] { return read_text(plan.log_file).find(text) != std::string::npos; });
  }

  fs::path folder;
  asio::io_context loop;
  asio::thread_pool workers{2};
  std::unique_ptr<Spawner> spawner;
  std::uint64_t next_id = 1;

 private:
  asio::awaitable<void> try_start_task(LaunchPlan plan,
                                       std::optional<Result<std::shared_ptr<Instance>>>& out) {
    auto started = co_await Instance::start(loop, workers, *spawner, std::move(plan));
    out.emplace(std::move(started));
  }
};

// Every promise holds with a pid namespace and, where the host allows none, without.
class InstanceTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !host.spawner->pid_namespaces()) {
      GTEST_SKIP() << "this host allows no pid namespaces to this user";
    }
  }
  TestHost host{GetParam()};
};

inline std::string isolation_name(const testing::TestParamInfo<bool>& info) {
  return info.param ? "WithNamespaces" : "WithoutNamespaces";
}

}  // namespace omni
