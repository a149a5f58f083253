#include "cli/sink.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace omni::cli {

Sink::Sink(Console& console, std::string path)
    : console_(console), path_(path == "-" ? std::string() : std::move(path)) {}

Sink::~Sink() {
  struct stat status{};
  const bool broke_off = file_ && ::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode);
  if (broke_off) ::unlink(path_.c_str());
  if (last_ != '\n' && is_terminal()) [[maybe_unused]]
    Result<void> ended = console_.write("\n");
}

Result<void> Sink::write(std::string_view data) {
  if (data.empty()) return {};
  last_ = data.back();
  if (path_.empty()) return console_.write(data);
  if (!file_) file_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file_) return errno_error("cannot create " + path_);
  const int failure = write_all(file_.get(), data);
  if (failure == 0) return {};
  return failure == EINTR ? interrupted() : errno_error("cannot write " + path_, failure);
}

Result<void> Sink::finish(bool text) {
  const bool open_line = text && path_.empty() && last_ != '\n';
  last_ = '\n';
  if (open_line) CHECK(console_.write("\n"));
  if (!file_) return {};
  // Some file systems report a failed write only here.
  if (::close(file_.release()) != 0) return errno_error("cannot write " + path_);
  return {};
}

}  // namespace omni::cli
