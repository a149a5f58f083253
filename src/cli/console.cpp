#include "cli/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace omni::cli {
Error interrupted() { return {ErrorCode::cancelled, "interrupted"}; }

int write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0) return errno;
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

bool Console::input_is_terminal() const { return ::isatty(streams_.in) == 1; }
bool Console::output_is_terminal() const { return ::isatty(streams_.out) == 1; }

std::optional<std::size_t> Console::width() const {
  winsize size{};
  if (::ioctl(streams_.out, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

Result<void> Console::write(std::string_view text) {
  const int failure = write_all(streams_.out, text);
  if (failure == 0) return {};
  if (failure == EINTR) return interrupted();
  output_closed_ = failure == EPIPE;
  return errno_error("cannot write the output", failure);
}

Result<void> Console::write_line(std::string_view text) { return write(fmt::format("{}\n", text)); }

void Console::write_error(std::string_view message) {
  write_all(streams_.err, fmt::format("omni: {}\n", message));
}

Result<std::string> Console::read_input(Bytes limit) {
  std::string input;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(streams_.in, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) return interrupted();
    if (n < 0) return errno_error("cannot read the input");
    if (n == 0) return input;
    input.append(buffer, static_cast<std::size_t>(n));
    if (input.size() > static_cast<std::size_t>(limit.count())) {
      return Error{ErrorCode::body_too_large,
                   fmt::format("the input is larger than {}", to_string(limit))};
    }
  }
}

}  // namespace omni::cli
