#include "processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "pidfd.h"

namespace omni::shim {
namespace {

struct Process {
  pid_t pid;
  pid_t parent;
  bool zombie;
};

// More processes than this are met in the next round.
constexpr int kMaxProcesses = 32768;
Process table[kMaxProcesses];

bool read_process(pid_t pid, Process& process) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[512];
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return false;
  text[size] = '\0';
  // The name in parentheses may hold anything, also ") R 1": fields begin behind the last one.
  const char* fields = std::strrchr(text, ')');
  if (!fields || std::strlen(fields) < 5) return false;
  process = {pid, static_cast<pid_t>(std::atoi(fields + 4)), fields[2] == 'Z' || fields[2] == 'X'};
  return true;
}

// /proc lists processes by ascending pid, so that the table is sorted.
int read_table() {
  DIR* folder = opendir("/proc");
  if (!folder) return 0;
  int count = 0;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (count == kMaxProcesses) break;
    if (read_process(std::atoi(entry->d_name), table[count])) ++count;
  }
  closedir(folder);
  return count;
}

const Process* find(int count, pid_t pid) {
  int low = 0;
  int high = count;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (table[middle].pid < pid) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && table[low].pid == pid ? &table[low] : nullptr;
}

bool is_victim(int count, const Process& process, pid_t root, bool (*spare)(pid_t)) {
  const Process* at = &process;
  // The table is no snapshot: a chain that loops through reused pids ends by the bound.
  for (int depth = 0; at && depth < 1024; ++depth) {
    if (at->pid == root || (spare && spare(at->pid))) return false;
    if (at->parent == root) return true;
    at = find(count, at->parent);
  }
  return false;
}

// By pidfd and a second look, so that a pid that was reused since the walk is not hit.
void kill_if_same(const Process& process) {
  const int handle = open_pidfd(process.pid);
  if (handle < 0) return;
  Process now;
  if (read_process(process.pid, now) && now.parent == process.parent) {
    signal_pidfd(handle, SIGKILL);
  }
  close(handle);
}

}  // namespace

int kill_descendants(pid_t root, bool (*spare)(pid_t)) {
  const int count = read_table();
  int found = 0;
  for (int i = 0; i < count; ++i) {
    if (table[i].zombie || !is_victim(count, table[i], root, spare)) continue;
    ++found;
    kill_if_same(table[i]);
  }
  return found;
}

}  // namespace omni::shim
