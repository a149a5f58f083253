// Messages with descriptors over SEQPACKET sockets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "failure.h"
#include "protocol/shim_protocol.h"

namespace omni::shim {

// Sends a report, with a descriptor when fd is not negative. Never blocks: a daemon that reads
// nothing loses reports, and learns of the end by the socket's end.
void send_report(int control, const protocol::ShimReport& report, int fd = -1);
void send_failure(int control, const Failure& failure);

// Receives one message and at most two descriptors (-1 where none came). Returns its size, 0 when
// the peer has closed, -1 with errno.
long receive(int socket, void* message, std::size_t size, int (&fds)[2]);

}  // namespace omni::shim
