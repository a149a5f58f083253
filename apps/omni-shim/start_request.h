// A StartRequest as the shim reads it: pointers into the mapped memfd, nothing is copied.
#pragma once

#include "failure.h"
#include "protocol/shim_protocol.h"

namespace omni::shim {

struct Reach {
  const char* path;
  bool writable;
};

struct Start {
  protocol::StartHeader header;
  const char* working_directory;
  const char* run_dir;
  const char* log_file;
  char* argv[protocol::kMaxStartStrings + 1];  // as execve takes them: ended by null
  char* envp[protocol::kMaxStartStrings + 1];
  Reach reach[protocol::kMaxStartStrings];
};

// Maps the descriptor and fills `start`; the mapping stays for the life of the process.
bool read_start(int fd, Start& start, Failure& failure);

}  // namespace omni::shim
