#include "provision/provisioner.h"

#include <fmt/format.h>

#include "base/fd.h"
#include "base/files.h"
#include "provision/digest.h"
#include "provision/environments.h"
#include "provision/file_lock.h"
#include "provision/interpreters.h"
#include "provision/use_records.h"
#include "provision/version.h"
#include "provision/weights.h"
#include "provision/workers.h"

namespace omni {

using namespace std::chrono_literals;

struct Provisioner::Impl {
  Impl(asio::io_context& loop, asio::thread_pool& pool, const NodePaths& paths,
       DownloadLimits limits)
      : workers(pool),
        state(paths.state),
        environments(loop, pool, paths.state, process_environment()),
        weights(loop, pool, paths.state, process_environment(), digests, limits),
        records(std::make_shared<UseRecords>(paths.state)) {}

  static asio::awaitable<Result<Provisioned>> provision(std::shared_ptr<Impl> self, ModelSpec spec,
                                                        ProgressSink progress);

  asio::thread_pool& workers;
  std::filesystem::path state;
  Interpreters interpreters{interpreter_folders()};
  std::shared_ptr<FileDigests> digests = std::make_shared<FileDigests>();  // with worker jobs
  Environments environments;
  Weights weights;
  std::shared_ptr<UseRecords> records;  // with worker jobs
  std::map<std::string, Fd> held;       // model_lock() of each model, for this object's life
};

namespace {

constexpr Duration kLongestGarbage = 1h;  // that `omni gc` may take
// Preparations that `omni gc` undoes before they are noted; each costs it and us a second or more.
constexpr int kMostRounds = 5;

Error about(std::string_view what, Error error) {
  error.message = fmt::format("{}: {}", what, error.message);
  return error;
}

}  // namespace

// One call: what it has found so far.
class Provisioner::Preparation {
 public:
  Preparation(Impl& owner, ModelSpec spec, ProgressSink progress)
      : owner_(owner), spec_(std::move(spec)) {
    tell_ = [name = spec_.name, progress](std::string_view line) {
      if (progress) progress(fmt::format("{}: {}", name, line));
    };
  }

  asio::awaitable<Result<Provisioned>> run();

 private:
  asio::awaitable<Result<void>> take_lock();
  asio::awaitable<Result<void>> prepare();
  asio::awaitable<Result<void>> add_interpreter();
  asio::awaitable<Result<void>> add_environment();
  asio::awaitable<Result<void>> add_weights();
  asio::awaitable<Result<void>> add_version();
  asio::awaitable<Result<void>> claim(Used more);
  asio::awaitable<Result<bool>> commit();

  Impl& owner_;
  ModelSpec spec_;
  LineSink tell_;
  Provisioned ready_;
  Used used_;
  std::string environment_;                                  // what stands for it in the version
  std::string description_;                                  // of the interpreter
  std::map<std::filesystem::path, std::string> identities_;  // of weights
  std::vector<std::filesystem::path> must_exist_;
};

// From here on `omni gc` leaves alone what the model uses, even if it is configured no more.
asio::awaitable<Result<void>> Provisioner::Preparation::take_lock() {
  if (owner_.held.contains(spec_.name)) co_return Result<void>();
  auto make_folder = [folder = records_folder(owner_.state)] { return make_directories(folder); };
  CO_CHECK(co_await on_workers(owner_.workers, make_folder));
  LineSink tell = [this](std::string_view) { tell_("waiting for `omni gc`"); };
  const auto file = model_lock(owner_.state, spec_.name);
  CO_TRY(Fd lock, co_await lock_file(file, kLongestGarbage, std::move(tell), LockMode::shared));
  owner_.held[spec_.name] = std::move(lock);
  co_return Result<void>();
}

asio::awaitable<Result<void>> Provisioner::Preparation::add_interpreter() {
  // A command without an environment has no use for Python.
  if (!spec_.python && spec_.requirements.empty()) {
    ready_.python = spec_.interpreter;
    co_return Result<void>();
  }
  CO_TRY(Interpreter interpreter, co_await owner_.interpreters.find(spec_.interpreter));
  ready_.python = interpreter.path;
  description_ = interpreter.description;
  environment_ = interpreter.description;
  co_return Result<void>();
}

asio::awaitable<Result<void>> Provisioner::Preparation::add_environment() {
  if (spec_.requirements.empty()) co_return Result<void>();
  const std::filesystem::path requirements = spec_.dir / spec_.requirements;
  const std::filesystem::path overrides =
      spec_.overrides.empty() ? std::filesystem::path() : spec_.dir / spec_.overrides;
  auto read = [requirements, overrides, description = description_] {
    return read_recipe(requirements, overrides, description);
  };
  CO_TRY(EnvironmentRecipe recipe, co_await on_workers(owner_.workers, read));
  recipe.interpreter = ready_.python;
  recipe.index = spec_.index;
  environment_ = recipe.hash();
  Used more{.environments = {environment_}};
  CO_CHECK(co_await claim(std::move(more)));
  CO_TRY(ready_.env_dir, co_await owner_.environments.get(std::move(recipe), tell_));
  ready_.python = ready_.env_dir / "bin/python";
  must_exist_.push_back(ready_.env_dir / ".complete");
  co_return Result<void>();
}

asio::awaitable<Result<void>> Provisioner::Preparation::add_weights() {
  ClaimPart claim_part = [this](std::string identity) {
    return claim({.weights = {std::move(identity)}});
  };
  for (const WeightSpec& weight : spec_.weights) {
    auto ready = co_await owner_.weights.get(weight, spec_.dir, claim_part, tell_);
    if (!ready.ok()) co_return about(fmt::format("weight \"{}\"", weight.name), ready.error());
    ready_.weights[weight.name] = ready->path;
    identities_[ready->path] = ready->identity;
    if (!ready->in_store) continue;
    used_.weights.insert(ready->identity);
    must_exist_.push_back(ready->path);
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> Provisioner::Preparation::add_version() {
  auto hash = [spec = spec_, environment = environment_, identities = identities_,
               digests = owner_.digests] {
    return version_of(spec, environment, identities, *digests);
  };
  CO_TRY(ready_.version, co_await on_workers(owner_.workers, hash));
  used_.versions.insert(ready_.version);
  co_return Result<void>();
}

asio::awaitable<Result<void>> Provisioner::Preparation::claim(Used more) {
  used_.add(more);
  auto write = [records = owner_.records, name = spec_.name, more] {
    return records->claim(name, more);
  };
  auto written = co_await on_workers(owner_.workers, write);
  co_return written;
}

// False: something has been removed since it was found.
asio::awaitable<Result<bool>> Provisioner::Preparation::commit() {
  LineSink tell = [this](std::string_view) { tell_("waiting for `omni gc`"); };
  const auto file = garbage_lock(owner_.state);
  CO_TRY(Fd lock, co_await lock_file(file, kLongestGarbage, std::move(tell), LockMode::shared));
  auto write = [records = owner_.records, name = spec_.name, used = used_,
                must_exist = must_exist_] { return records->commit(name, used, must_exist); };
  auto whole = co_await on_workers(owner_.workers, write);
  co_return whole;
}

asio::awaitable<Result<void>> Provisioner::Preparation::prepare() {
  ready_ = {};
  used_ = {};
  identities_.clear();
  must_exist_.clear();
  CO_CHECK(co_await add_interpreter());
  auto environment = co_await add_environment();
  if (!environment.ok()) co_return about(spec_.requirements, environment.error());
  CO_CHECK(co_await add_weights());
  auto version = co_await add_version();
  co_return version;
}

asio::awaitable<Result<Provisioned>> Provisioner::Preparation::run() {
  CO_CHECK(co_await take_lock());
  for (int round = 0; round < kMostRounds; ++round) {
    CO_CHECK(co_await prepare());
    CO_TRY(bool whole, co_await commit());
    if (whole) co_return ready_;
  }
  co_return Error{ErrorCode::provision_failed,
                  "what was prepared has been removed from the state folder each time"};
}

asio::awaitable<Result<Provisioned>> Provisioner::Impl::provision(std::shared_ptr<Impl> self,
                                                                  ModelSpec spec,
                                                                  ProgressSink progress) {
  const std::string subject = fmt::format("model \"{}\"", spec.name);
  Preparation preparation(*self, std::move(spec), std::move(progress));
  auto ready = co_await preparation.run();
  if (!ready.ok()) co_return about(subject, ready.error());
  co_return ready;
}

Provisioner::Provisioner(asio::io_context& loop, asio::thread_pool& workers, NodePaths paths,
                         DownloadLimits limits)
    : impl_(std::make_shared<Impl>(loop, workers, paths, limits)) {}

Provisioner::~Provisioner() = default;

void Provisioner::release(const std::string& model) { impl_->held.erase(model); }

asio::awaitable<Result<Provisioned>> Provisioner::provision(const ModelSpec& spec,
                                                            ProgressSink progress) {
  return Impl::provision(impl_, spec, std::move(progress));
}

}  // namespace omni
