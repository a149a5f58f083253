// The shim: parent and reaper of one instance's process tree.
#pragma once

#include <sys/types.h>

namespace omni::shim {

struct Namespaces {
  bool user = false;  // user, pid and mount namespace of an ordinary user
  bool pid = false;   // pid and mount namespace, with or without the user's
};

// Called in the child that the spawner cloned: carries out the start request, stays until the tree
// is gone and exits. `uid` and `gid` are the spawner's.
[[noreturn]] void run_shim(int control, int request, Namespaces namespaces, uid_t uid, gid_t gid);

}  // namespace omni::shim
