// omni-shim --spawner: starts shims for the daemon, which has too many threads and too much memory
// to fork.
#pragma once

namespace omni::shim {

// `namespaces`: false runs every instance without, as on a host that allows none.
int run_spawner(bool namespaces);

}  // namespace omni::shim
