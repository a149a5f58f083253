#include "provision/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <vector>

#include "base/fd.h"

namespace omni {
namespace {

bool is_same(const struct stat& a, const struct stat& b) {
  auto same_time = [](const timespec& x, const timespec& y) {
    return x.tv_sec == y.tv_sec && x.tv_nsec == y.tv_nsec;
  };
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         same_time(a.st_mtim, b.st_mtim) && same_time(a.st_ctim, b.st_ctim);
}

// Times have the grain of a clock tick: a file that was just written may be written once more
// without showing it.
bool is_settled(const struct stat& info) {
  constexpr time_t kSettleSeconds = 2;
  return std::time(nullptr) - info.st_ctim.tv_sec > kSettleSeconds;
}

// Hands the file's content to `take` in pieces.
template <typename Take>
Result<void> read_pieces(int fd, const std::filesystem::path& file, const Take& take) {
  std::vector<char> buffer(1 << 18);
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("cannot read " + file.string());
    if (n == 0) return {};
    take(std::string_view(buffer.data(), static_cast<std::size_t>(n)));
  }
}

}  // namespace

Result<std::string> git_blob_sha1(const std::filesystem::path& file) {
  Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return errno_error("cannot open " + file.string());
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  auto update = [&context](std::string_view bytes) {
    if (EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) != 1) throw std::bad_alloc();
  };
  if (EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) != 1) throw std::bad_alloc();
  std::string start = fmt::format("blob {}", info.st_size);
  start += '\0';
  update(start);
  CHECK(read_pieces(fd.get(), file, update));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (EVP_DigestFinal_ex(context.get(), digest.data(), &size) != 1) throw std::bad_alloc();
  return to_hex(std::span(digest).first(size));
}

Result<std::string> FileDigests::of(const std::filesystem::path& file) {
  Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat before = {};
  if (!fd || ::fstat(fd.get(), &before) != 0) return errno_error("cannot open " + file.string());
  if (!S_ISREG(before.st_mode)) return Error{ErrorCode::io_error, file.string() + " is no file"};
  {
    const std::lock_guard lock(mutex_);
    const auto known = entries_.find(file);
    if (known != entries_.end() && is_same(known->second.seen, before)) return known->second.digest;
  }
  Sha256 hash;
  CHECK(read_pieces(fd.get(), file, [&hash](std::string_view bytes) { hash.update(bytes); }));
  std::string digest = hash.finish();
  struct stat after = {};
  if (::fstat(fd.get(), &after) == 0 && is_same(before, after) && is_settled(after)) {
    const std::lock_guard lock(mutex_);
    entries_[file] = {after, digest};
  }
  return digest;
}

}  // namespace omni
