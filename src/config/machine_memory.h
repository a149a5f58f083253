// How much memory this process may use. Private to this module.
#pragma once

#include "base/bytes.h"

namespace omni {

// The machine's memory, or the memory limit of the daemon's own control group where that is less:
// in a container the machine's size is not what may be used.
Bytes usable_machine_memory();

}  // namespace omni
