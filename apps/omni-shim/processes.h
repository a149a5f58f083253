// Descendants by /proc, for hosts that allow no pid namespace.
#pragma once

#include <sys/types.h>

namespace omni::shim {

// Sends SIGKILL to every descendant of `root` but those that `spare` names and what lies below
// them; null spares none. Returns how many living ones it found: a caller repeats it until none is
// left, because processes fork while it walks.
int kill_descendants(pid_t root, bool (*spare)(pid_t));

}  // namespace omni::shim
