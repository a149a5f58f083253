#include "provision/remote.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"
#include "provision/download.h"
#include "provision/file_lock.h"
#include "provision/workers.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

struct PartFile {
  fs::path content;
  fs::path etag;  // see download.cpp
  fs::path lock;

  PartFile(const WeightStore& store, const RemoteFile& file) {
    const fs::path base = parts_folder(store.root()) / file.identity();
    content = base.string() + ".part";
    etag = content.string() + ".etag";
    lock = base.string() + ".lock";
  }
  void discard() const {
    ::unlink(content.c_str());
    ::unlink(etag.c_str());
  }
  // A daemon that ended between the last byte and the check has left all of it.
  bool is_whole(const RemoteFile& file) const {
    std::error_code status;
    const auto size = fs::file_size(content, status);
    if (status || !file.size) return false;
    const auto wanted = static_cast<std::uintmax_t>(file.size->count());
    if (size > wanted) discard();
    return size == wanted;
  }
};

// The digests of the whole part: sha256, and what it should have been if that is something else.
struct Checked {
  std::string sha256;
  std::string mismatch;
};

Result<Checked> check_part(const RemoteFile& file, const fs::path& part, FileDigests& digests) {
  TRY(std::string sha256, digests.of(part));
  Checked checked{.sha256 = sha256};
  if (!file.sha256.empty()) {
    if (sha256 != file.sha256) {
      checked.mismatch = fmt::format("{} has the sha256 {}, and {} says {}", file.shown, sha256,
                                     file.authority, file.sha256);
    }
    return checked;
  }
  TRY(const std::string git, git_blob_sha1(part));
  if (git != file.git_sha1) {
    checked.mismatch = fmt::format("{} has git's digest {}, and {} says {}", file.shown, git,
                                   file.authority, file.git_sha1);
  }
  return checked;
}

// The size that the server gives, or nothing: some do not answer HEAD, and GET will tell.
asio::awaitable<Result<std::optional<Bytes>>> ask_size(Curl curl, RemoteFile file,
                                                       DownloadLimits limits) {
  auto reply = std::make_shared<CurlReply>();
  CurlRequest request{.url = file.url, .head = true, .token = file.token};
  CO_CHECK(co_await curl.run(std::move(request), limits, -1, reply));
  std::optional<Bytes> size;
  if (reply->exit.success() && reply->status() == 200) {
    const std::string length = reply->head()->field("content-length");
    if (!length.empty() && length.size() <= 18 &&
        length.find_first_not_of("0123456789") == length.npos) {
      size = Bytes(std::stoll(length));
    }
  }
  co_return size;
}

// Fetches what is missing of the part and checks it. A part that was made in pieces and is wrong
// may be of two files; it is fetched once more from its beginning.
asio::awaitable<Result<std::string>> fetch_checked(asio::thread_pool& workers, Curl curl,
                                                   WeightStore store, RemoteFile file,
                                                   PartFile part, int lock, DownloadLimits limits,
                                                   LineSink progress) {
  for (bool again = false;; again = true) {
    Downloaded downloaded{.pieced = true};
    if (!part.is_whole(file)) {
      Download task{.url = file.url,
                    .shown = file.shown,
                    .name = file.name,
                    .token = file.token,
                    .size = file.size,
                    .part = part.content,
                    .lock = lock};
      CO_TRY(downloaded, co_await download(workers, curl, std::move(task), limits, progress));
    }
    auto check = [file, part, store] { return check_part(file, part.content, store.digests()); };
    CO_TRY(Checked checked, co_await on_workers(workers, check));
    if (checked.mismatch.empty()) co_return checked.sha256;
    part.discard();
    if (!downloaded.pieced || again) co_return Error{ErrorCode::provision_failed, checked.mismatch};
    progress(fmt::format("{}: the pieces do not fit together: starting over", file.name));
  }
}

}  // namespace

fs::path parts_folder(const fs::path& weights_root) { return weights_root / "parts"; }

asio::awaitable<Result<fs::path>> fetch_remote(asio::thread_pool& workers, Curl curl,
                                               WeightStore store, RemoteFile file,
                                               DownloadLimits limits, LineSink progress) {
  const PartFile part(store, file);
  auto make_folder = [store]() -> Result<void> {
    CHECK(make_directories(store.root()));
    return make_directories(parts_folder(store.root()));
  };
  CO_CHECK(co_await on_workers(workers, make_folder));
  CO_TRY(Fd lock, co_await lock_file(part.lock, limits.total, progress));
  // Another process may have fetched it while this one waited.
  auto look = [store, sha256 = file.sha256]() -> Result<fs::path> {
    return sha256.empty() ? fs::path() : store.find(sha256).path;
  };
  CO_TRY(fs::path stored, co_await on_workers(workers, look));
  if (!stored.empty()) co_return stored;
  if (!file.size) {
    CO_TRY(file.size, co_await ask_size(curl, file, limits));
  }
  progress(file.size ? fmt::format("fetching {}, {}", file.name, to_string(*file.size))
                     : fmt::format("fetching {}", file.name));
  CO_TRY(std::string sha256,
         co_await fetch_checked(workers, curl, store, file, part, lock.get(), limits, progress));
  auto add = [store, part, sha256]() -> Result<fs::path> {
    TRY(fs::path content, store.add(part.content, sha256));
    part.discard();
    return content;
  };
  auto added = co_await on_workers(workers, add);
  co_return added;
}

}  // namespace omni
