#include "supervisor/process_tree.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>

#include "base/files.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

std::string read_proc(const std::string& path) {
  auto text = read_file(path, 1_MiB);
  return text.ok() ? *std::move(text) : std::string();  // a process that has just ended
}

std::int64_t number(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The number behind "Key:", 0 when there is none.
std::int64_t field(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; (at = text.find(key, at)) != std::string_view::npos; at += key.size()) {
    const bool line_start = at == 0 || text[at - 1] == '\n';
    if (line_start) return number(text.substr(at + key.size()));
  }
  return 0;
}

void append_children(pid_t pid, std::vector<pid_t>& out) {
  std::error_code status;
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  for (fs::directory_iterator it(tasks, status), end; !status && it != end; it.increment(status)) {
    const std::string text = read_proc(it->path().string() + "/children");
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t space = rest.find(' ');
      if (const std::int64_t child = number(rest.substr(0, space)); child > 0) {
        out.push_back(static_cast<pid_t>(child));
      }
      rest.remove_prefix(space == std::string_view::npos ? rest.size() : space + 1);
    }
  }
}

// utime, stime, cutime and cstime: fields 14 to 17 of stat.
Duration cpu_time(pid_t pid) {
  const std::string text = read_proc(fmt::format("/proc/{}/stat", pid));
  // The name, field 2, may hold spaces and parentheses: fields begin behind the last one.
  std::size_t at = text.rfind(')');
  std::int64_t ticks = 0;
  for (int index = 3; index <= 17 && at != std::string::npos; ++index) {
    at = text.find(' ', at + 1);
    if (index >= 14 && at != std::string::npos) ticks += number(std::string_view(text).substr(at));
  }
  static const std::int64_t ticks_per_second = ::sysconf(_SC_CLK_TCK);
  return std::chrono::milliseconds(ticks * 1000 / ticks_per_second);
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  std::vector<pid_t> tree{root};
  for (std::size_t i = 0; i < tree.size(); ++i) append_children(tree[i], tree);
  tree.erase(tree.begin());
  return tree;
}

InstanceUsage read_usage(pid_t root, bool with_pss) {
  InstanceUsage usage;
  for (const pid_t pid : descendants(root)) {
    const std::string status = read_proc(fmt::format("/proc/{}/status", pid));
    if (status.empty()) continue;
    ++usage.processes;
    usage.high_water += Bytes(field(status, "VmHWM:") * 1024);
    if (!with_pss) continue;
    const std::string rollup = read_proc(fmt::format("/proc/{}/smaps_rollup", pid));
    usage.pss += Bytes(field(rollup, "Pss:") * 1024);
  }
  return usage;
}

Work read_work(pid_t root, const fs::path& log) {
  Work work;
  work.cpu = cpu_time(root);  // the shim has the time of orphans that it reaped
  for (const pid_t pid : descendants(root)) {
    work.cpu += cpu_time(pid);
    const std::string io = read_proc(fmt::format("/proc/{}/io", pid));
    work.bytes_read += static_cast<std::uint64_t>(field(io, "rchar:"));
  }
  struct stat info{};
  if (::stat(log.c_str(), &info) == 0) {
    work.log_bytes = static_cast<std::uint64_t>(info.st_size);
    work.log_inode = info.st_ino;
  }
  return work;
}

}  // namespace omni
