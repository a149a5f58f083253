// omni-shim: the spawner, and by its hand the shims. Started by omni alone; docs/contracts/shim.md.
#include <unistd.h>

#include <cstring>

#include "spawner.h"

int main(int argc, char** argv) {
  const bool spawner = argc >= 2 && std::strcmp(argv[1], "--spawner") == 0;
  const bool plain = argc == 3 && std::strcmp(argv[2], "--no-namespaces") == 0;
  if (spawner && (argc == 2 || plain)) return omni::shim::run_spawner(!plain);
  static const char usage[] =
      "usage: omni-shim --spawner [--no-namespaces]\n"
      "Started by omni with a control socket as descriptor 3; of no use by hand.\n";
  [[maybe_unused]] const ssize_t ignored = write(2, usage, sizeof usage - 1);
  return 64;
}
