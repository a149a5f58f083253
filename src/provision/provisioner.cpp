#include "provision/provisioner.h"

#include <fmt/format.h>

#include "provision/digest.h"
#include "provision/environments.h"
#include "provision/version.h"
#include "provision/weights.h"
#include "provision/workers.h"

namespace omni {

struct Provisioner::Impl {
  Impl(asio::io_context& loop, asio::thread_pool& pool, const NodePaths& paths)
      : workers(pool),
        environments(loop, pool, paths.state, process_environment()),
        weights(loop, pool, paths.state, process_environment(), digests) {}

  static asio::awaitable<Result<Provisioned>> provision(std::shared_ptr<Impl> self, ModelSpec spec,
                                                        ProgressSink progress);
  asio::awaitable<Result<void>> add_environment(ModelSpec spec, LineSink progress,
                                                Provisioned& into, std::string& hash);
  asio::awaitable<Result<void>> add_weights(
      ModelSpec spec, LineSink progress, Provisioned& into,
      std::map<std::filesystem::path, std::string>& identities);

  asio::awaitable<Result<std::string>> python();

  asio::thread_pool& workers;
  std::map<std::filesystem::path, std::string> pythons;  // descriptions by real path
  std::shared_ptr<FileDigests> digests = std::make_shared<FileDigests>();  // with worker jobs
  Environments environments;
  Weights weights;
};

namespace {

Error about(std::string_view what, Error error) {
  error.message = fmt::format("{}: {}", what, error.message);
  return error;
}

}  // namespace

// Asked once per interpreter: an upgrade of the system's Python changes where the link points.
asio::awaitable<Result<std::string>> Provisioner::Impl::python() {
  std::error_code status;
  const std::filesystem::path real = std::filesystem::canonical(kPython, status);
  if (const auto known = pythons.find(real); known != pythons.end()) co_return known->second;
  CO_TRY(std::string description, co_await describe_python());
  pythons.emplace(real, description);
  co_return description;
}

asio::awaitable<Result<void>> Provisioner::Impl::add_environment(ModelSpec spec, LineSink progress,
                                                                 Provisioned& into,
                                                                 std::string& hash) {
  CO_TRY(std::string description, co_await python());
  const std::filesystem::path requirements = spec.dir / spec.requirements;
  const std::filesystem::path overrides =
      spec.overrides.empty() ? std::filesystem::path() : spec.dir / spec.overrides;
  auto read = [requirements, overrides, description] {
    return read_recipe(requirements, overrides, description);
  };
  CO_TRY(EnvironmentRecipe recipe, co_await on_workers(workers, read));
  hash = recipe.hash();
  CO_TRY(into.env_dir, co_await environments.get(std::move(recipe), std::move(progress)));
  co_return Result<void>();
}

asio::awaitable<Result<void>> Provisioner::Impl::add_weights(
    ModelSpec spec, LineSink progress, Provisioned& into,
    std::map<std::filesystem::path, std::string>& identities) {
  for (const WeightSpec& weight : spec.weights) {
    auto ready = co_await weights.get(weight, spec.dir, progress);
    if (!ready.ok()) co_return about(fmt::format("weight \"{}\"", weight.name), ready.error());
    into.weights[weight.name] = ready->path;
    identities[ready->path] = ready->identity;
  }
  co_return Result<void>();
}

asio::awaitable<Result<Provisioned>> Provisioner::Impl::provision(std::shared_ptr<Impl> self,
                                                                  ModelSpec spec,
                                                                  ProgressSink progress) {
  LineSink tell = [name = spec.name, progress](std::string_view line) {
    if (progress) progress(fmt::format("{}: {}", name, line));
  };
  const std::string subject = fmt::format("model \"{}\"", spec.name);
  Provisioned ready;
  std::string environment_hash;
  std::map<std::filesystem::path, std::string> identities;
  if (!spec.requirements.empty()) {
    auto added = co_await self->add_environment(spec, tell, ready, environment_hash);
    if (!added.ok()) {
      co_return about(fmt::format("{}: {}", subject, spec.requirements), added.error());
    }
  }
  auto added = co_await self->add_weights(spec, tell, ready, identities);
  if (!added.ok()) co_return about(subject, added.error());

  auto hash = [spec, environment_hash, identities, digests = self->digests] {
    return version_of(spec, environment_hash, identities, *digests);
  };
  auto version = co_await on_workers(self->workers, hash);
  if (!version.ok()) co_return about(subject, version.error());
  ready.version = *std::move(version);
  co_return ready;
}

Provisioner::Provisioner(asio::io_context& loop, asio::thread_pool& workers, NodePaths paths)
    : impl_(std::make_shared<Impl>(loop, workers, paths)) {}

Provisioner::~Provisioner() = default;

asio::awaitable<Result<Provisioned>> Provisioner::provision(const ModelSpec& spec,
                                                            ProgressSink progress) {
  return Impl::provision(impl_, spec, std::move(progress));
}

}  // namespace omni
