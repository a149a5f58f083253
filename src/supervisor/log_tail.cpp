#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/text.h"
#include "supervisor/instance.h"

namespace omni {
namespace {

constexpr std::size_t kTailBytes = 64 * 1024;  // read from the end of the log
constexpr std::size_t kLineBytes = 500;        // of a line, in an error message

std::string read_tail(const std::filesystem::path& log, std::uint64_t from) {
  Fd file(::open(log.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0) return {};
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (from > size) from = 0;  // rotated since
  from = std::max(from, size - std::min<std::uint64_t>(size, kTailBytes));
  std::string text(size - from, '\0');
  const ssize_t n = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(from));
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

// Length of the UTF-8 character at the front, 0 when there is none.
std::size_t character_length(std::string_view text) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length) {
    if (is_utf8(text.substr(0, length))) return length;
  }
  return 0;
}

// "\x1b[31m" and the like: the bytes of an escape sequence at the front.
std::size_t escape_length(std::string_view text) {
  if (text.size() < 2 || text[0] != '\x1b' || text[1] != '[') return 0;
  const std::size_t end = text.find_first_not_of("0123456789;:?", 2);
  return end == std::string_view::npos ? text.size() : end + 1;
}

std::string clean(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  // A progress bar that rewrites its line: what it showed last.
  if (const std::size_t last = line.rfind('\r'); last != std::string_view::npos) {
    line.remove_prefix(last + 1);
  }
  std::string out;
  while (!line.empty()) {
    if (out.size() >= kLineBytes) return out + "…";
    if (const std::size_t escape = escape_length(line)) {
      line.remove_prefix(escape);
      continue;
    }
    const std::size_t length = character_length(line);
    const auto first = static_cast<unsigned char>(line[0]);
    if (length == 0) {
      out += "\uFFFD";
    } else if (first == '\t') {
      out += ' ';
    } else if (first >= 0x20 && first != 0x7F) {
      out += line.substr(0, length);
    }
    line.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

}  // namespace

std::vector<std::string> tail_lines(const std::filesystem::path& log, std::size_t count,
                                    std::uint64_t from) {
  const std::string text = read_tail(log, from);
  std::vector<std::string> lines;
  std::string_view rest = text;
  while (lines.size() < count && !rest.empty()) {
    if (rest.ends_with('\n')) rest.remove_suffix(1);
    const std::size_t begin = rest.rfind('\n') + 1;  // npos + 1 is 0
    std::string line = clean(rest.substr(begin));
    if (!line.empty()) lines.push_back(std::move(line));
    rest = rest.substr(0, begin);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace omni
