#include "node/file_watch.h"

#include <spdlog/spdlog.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>

#include "config/model_files.h"

namespace omni::node {
namespace {

constexpr std::uint32_t kEvents =
    IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR;

}  // namespace

FileWatch::FileWatch(asio::io_context& loop) : events_(loop) {
  const int fd = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd >= 0) {
    events_.assign(fd);
  } else {
    spdlog::warn("files are not watched ({}): `omni reload` reads them again",
                 std::strerror(errno));
  }
}

void FileWatch::watch(const std::filesystem::path& file,
                      const std::vector<std::filesystem::path>& roots) {
  file_ = file;
  roots_ = roots;
  const auto before = std::exchange(watches_, {});
  folders_.clear();
  if (!events_.is_open()) return;
  add(file.parent_path());
  for (const std::filesystem::path& root : roots) {
    add(root.parent_path());  // where it may be made anew
    add_root(root);
  }
  for (const auto& [folder, watch] : before) {
    if (!folders_.contains(watch)) ::inotify_rm_watch(events_.native_handle(), watch);
  }
}

void FileWatch::add(const std::filesystem::path& folder) {
  // The same folder has the same watch, however often it is added.
  const int watch = ::inotify_add_watch(events_.native_handle(), folder.c_str(), kEvents);
  if (watch >= 0) {
    watches_[folder] = watch;
    folders_[watch] = folder;
  } else if (errno == ENOSPC && !complained_) {
    complained_ = true;
    spdlog::warn(
        "not all files are watched, since fs.inotify.max_user_watches is reached: raise "
        "it, or use `omni reload`");
  }
}

void FileWatch::add_root(const std::filesystem::path& root) {
  add(root);
  std::error_code status;
  std::filesystem::directory_iterator entry(root, status);
  for (; !status && entry != std::filesystem::directory_iterator(); entry.increment(status)) {
    std::error_code ignored;
    const bool is_model = entry->is_directory(ignored);  // or a link to one
    if (is_model && !is_ignored_file(entry->path().filename().string())) add_model(entry->path());
  }
}

void FileWatch::add_model(const std::filesystem::path& folder) {
  add(folder);
  // What cannot be read cannot be watched.
  [[maybe_unused]] const auto unreadable =
      walk_model_folder(folder, [this](const std::filesystem::directory_entry& entry) {
        std::error_code ignored;
        if (!entry.is_symlink(ignored) && entry.is_directory(ignored)) add(entry.path());
      });
}

asio::awaitable<void> FileWatch::changed(Duration quiet, Duration longest) {
  while (!co_await read_until(TimePoint::max())) {
  }
  const TimePoint latest = Clock::now() + longest;
  for (;;) {
    const TimePoint until = std::min(Clock::now() + quiet, latest);
    while (Clock::now() < until && !co_await read_until(until)) {
    }
    if (Clock::now() >= until) co_return;
  }
}

// Whether something that counts has changed; false at the deadline too.
asio::awaitable<bool> FileWatch::read_until(TimePoint deadline) {
  asio::steady_timer timer(events_.get_executor(), deadline);
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  if (!events_.is_open()) {
    co_await timer.async_wait(token);
    co_return false;
  }
  timer.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled) events_.cancel();
  });
  co_await events_.async_wait(asio::posix::descriptor_base::wait_read, token);
  timer.cancel();
  alignas(inotify_event) std::array<char, 16384> buffer;
  bool any = false;
  for (;;) {
    const ssize_t size = ::read(events_.native_handle(), buffer.data(), buffer.size());
    if (size <= 0) co_return any;
    for (const char* at = buffer.data(); at < buffer.data() + size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(at);
      any = any || (event->mask & IN_Q_OVERFLOW) != 0 ||
            counts(event->wd, event->len > 0 ? event->name : "");
      at += sizeof(inotify_event) + event->len;
    }
  }
}

bool FileWatch::counts(int watch, std::string_view name) const {
  const auto found = folders_.find(watch);
  if (found == folders_.end() || is_ignored_file(name)) return false;
  const std::filesystem::path& folder = found->second;
  const std::filesystem::path changed = folder / name;
  // Beside omni.toml and the roots lie files of other kinds, such as the daemon's own.
  const auto about = [&](const std::filesystem::path& root) {
    const auto below = folder.lexically_relative(root);
    const bool inside = !below.empty() && *below.begin() != "..";
    return inside || changed == root;
  };
  return changed == file_ || std::ranges::any_of(roots_, about);
}

}  // namespace omni::node
