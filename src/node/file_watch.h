// Tells when the configuration's files change: omni.toml, the folders of models, what is in them.
// Lives on one loop. The kernel tells (inotify), so that a thousand models that nobody edits cost
// nothing; on file systems that other machines write to, it does not: there `omni reload` does.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace omni::node {

namespace asio = boost::asio;

class FileWatch {
 public:
  explicit FileWatch(asio::io_context& loop);

  // Watches the file and every folder below `roots` as they are now. Blocking, but for the kernel's
  // memory only. What changed before is still told.
  void watch(const std::filesystem::path& file, const std::vector<std::filesystem::path>& roots);

  // Returns after a change, when there has been none for `quiet`, or at latest after `longest`.
  asio::awaitable<void> changed(Duration quiet, Duration longest);

 private:
  asio::awaitable<bool> read_until(TimePoint deadline);
  bool counts(int watch, std::string_view name) const;
  void add(const std::filesystem::path& folder);
  void add_root(const std::filesystem::path& root);
  void add_model(const std::filesystem::path& folder);

  asio::posix::stream_descriptor events_;  // closed when the kernel gives none
  std::map<std::filesystem::path, int> watches_;
  std::map<int, std::filesystem::path> folders_;
  std::filesystem::path file_;
  std::vector<std::filesystem::path> roots_;
  bool complained_ = false;
};

}  // namespace omni::node
