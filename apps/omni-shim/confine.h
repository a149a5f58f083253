// What stands between an instance and the host: user and mount namespace, identity, reach.
#pragma once

#include <sys/types.h>

#include "failure.h"
#include "start_request.h"

namespace omni::shim {

// In a new user namespace: its one user is the caller's own, under the same number.
bool map_own_user(uid_t uid, gid_t gid, Failure& failure);

// In a new mount namespace: what the instance mounts stays in it, what the host unmounts goes here
// too, and /proc shows the instance's own processes. Where the host refuses a /proc, the old stays.
bool enter_mount_namespace(Failure& failure);

// Makes each path of `start.reach` usable for start.header.uid at the same place. An ancestor that
// the uid cannot traverse is covered by a small tmpfs that holds nothing but the way to the paths,
// and each path is bound through it, in the order given: read-only unless writable. Root, in its
// own mount namespace.
bool bind_reach(const Start& start, Failure& failure);
// The check alone, for hosts that allow no mount namespace.
bool check_reach(const Start& start, Failure& failure);

// Sets gid and uid, both to the same number, without supplementary groups. Root.
bool become(uid_t uid);

// Of a root shim: keeps what it needs to end its tree and to rotate its log, no more.
void drop_capabilities();

}  // namespace omni::shim
