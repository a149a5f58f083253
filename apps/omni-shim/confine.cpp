#include "confine.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace omni::shim {
namespace {

constexpr int kMaxPath = 4096;

bool write_file(const char* path, const char* text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const auto size = static_cast<ssize_t>(std::strlen(text));
  const bool written = write(file, text, static_cast<std::size_t>(size)) == size;
  const int error = errno;
  close(file);
  errno = error;
  return written;
}

// Whether the uid may do `mode`, by the kernel's own rules (modes, ACLs, read-only mounts): the
// file-system uid is switched for the question.
bool permitted(uid_t uid, const char* path, int mode) {
  setfsgid(uid);
  setfsuid(uid);
  const bool yes = syscall(SYS_faccessat2, AT_FDCWD, path, mode, AT_EACCESS) == 0;
  const int error = errno;
  setfsuid(0);
  setfsgid(0);
  errno = error;
  return yes;
}

// Calls step(prefix) for "/a", "/a/b", ... but not for the whole path; stops at the first false.
template <typename Step>
bool each_ancestor(const char* path, Step step) {
  char prefix[kMaxPath];
  for (const char* slash = std::strchr(path + 1, '/'); slash; slash = std::strchr(slash + 1, '/')) {
    const auto length = static_cast<std::size_t>(slash - path);
    std::memcpy(prefix, path, length);
    prefix[length] = '\0';
    if (!step(prefix)) return false;
  }
  return true;
}

bool cover(const char* folder) {
  return mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV,
               "mode=0755,size=256k,nr_inodes=1024") == 0;
}

// Exists already, or is made in a tmpfs that covers an ancestor.
bool make_mount_point(const char* path, bool folder) {
  if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if (folder) return mkdir(path, 0755) == 0;
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return false;
  close(file);
  return true;
}

bool check_path(const Reach& reach, uid_t uid, bool folder, Failure& failure) {
  const int mode = R_OK | (folder ? X_OK : 0) | (reach.writable ? W_OK : 0);
  return permitted(uid, reach.path, mode) || failure.set("let the model's user reach", reach.path);
}

bool bind_one(const Reach& reach, uid_t uid, int tree, Failure& failure) {
  struct stat info{};
  if (fstat(tree, &info) != 0) return failure.set("reach", reach.path);
  const bool folder = S_ISDIR(info.st_mode);

  mount_attr attributes{};
  attributes.attr_set =
      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (reach.writable ? 0 : MOUNT_ATTR_RDONLY);
  if (mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes) != 0) {
    return failure.set("protect", reach.path);
  }
  const bool way = each_ancestor(reach.path, [uid](const char* ancestor) {
    if (!make_mount_point(ancestor, true)) return false;
    return permitted(uid, ancestor, X_OK) || cover(ancestor);
  });
  if (!way || !make_mount_point(reach.path, folder)) return failure.set("make way to", reach.path);
  constexpr unsigned kFlags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS;
  if (move_mount(tree, "", AT_FDCWD, reach.path, kFlags) != 0) {
    return failure.set("bind", reach.path);
  }
  return check_path(reach, uid, folder, failure);
}

}  // namespace

bool map_own_user(uid_t uid, gid_t gid, Failure& failure) {
  char line[64];
  if (!write_file("/proc/self/setgroups", "deny")) return failure.set("deny", "setgroups");
  std::snprintf(line, sizeof line, "%u %u 1", uid, uid);
  if (!write_file("/proc/self/uid_map", line)) return failure.set("map", "the user");
  std::snprintf(line, sizeof line, "%u %u 1", gid, gid);
  if (!write_file("/proc/self/gid_map", line)) return failure.set("map", "the group");
  return true;
}

bool enter_mount_namespace(Failure& failure) {
  if (mount("", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return failure.set("detach", "/");
  // Refused inside containers that cover parts of their /proc; the old one is correct, only larger.
  mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  return true;
}

bool bind_reach(const Start& start, Failure& failure) {
  // All trees are taken before the first cover can hide one of them.
  static int trees[protocol::kMaxStartStrings];
  const std::uint32_t count = start.header.reach_count;
  for (std::uint32_t i = 0; i < count; ++i) {
    trees[i] = open_tree(AT_FDCWD, start.reach[i].path,
                         OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (trees[i] < 0) return failure.set("reach", start.reach[i].path);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!bind_one(start.reach[i], start.header.uid, trees[i], failure)) return false;
    close(trees[i]);
  }
  return true;
}

bool check_reach(const Start& start, Failure& failure) {
  for (std::uint32_t i = 0; i < start.header.reach_count; ++i) {
    struct stat info{};
    if (stat(start.reach[i].path, &info) != 0) return failure.set("reach", start.reach[i].path);
    if (!check_path(start.reach[i], start.header.uid, S_ISDIR(info.st_mode), failure)) return false;
  }
  return true;
}

bool become(uid_t uid) {
  return setgroups(0, nullptr) == 0 && setresgid(uid, uid, uid) == 0 &&
         setresuid(uid, uid, uid) == 0;
}

void drop_capabilities() {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  syscall(SYS_capget, &head, sets);
  const std::uint32_t keep = 1u << CAP_DAC_OVERRIDE | 1u << CAP_KILL;
  for (__user_cap_data_struct& set : sets) {
    const std::uint32_t kept = &set == &sets[0] ? keep : 0;
    set.effective &= kept;
    set.permitted &= kept;
    set.inheritable = 0;
  }
  syscall(SYS_capset, &head, sets);
}

}  // namespace omni::shim
