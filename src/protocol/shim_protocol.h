// How the daemon, the spawner (omni-shim --spawner) and each instance's shim talk:
// docs/contracts/shim.md.
//
// All three are on one machine, so numbers are in its byte order. The shim includes this header and
// has neither exceptions nor libstdc++: what it uses here allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace omni::protocol {

inline constexpr std::uint32_t kShimProtocolVersion = 1;
inline constexpr int kSpawnerSocketFd = 3;  // SEQPACKET, of the spawner
inline constexpr std::size_t kMaxStartBytes = 1 << 20;
inline constexpr std::uint32_t kMaxStartStrings = 4096;  // of argv, of env and of reach, each

// ---- daemon → spawner

// Starts one shim. Comes with two descriptors: the shim's end of its control socket (SEQPACKET) and
// a sealed memfd with the StartRequest. There is no answer here: everything about a start is
// reported on its control socket, which reads end-of-file once shim and tree are gone.
struct SpawnMessage {
  std::uint32_t version = kShimProtocolVersion;
};

// Spawner → daemon, once, when it is ready to start shims.
struct SpawnerHello {
  std::uint32_t version = kShimProtocolVersion;
  std::uint32_t pid_namespaces = 0;  // 1: shims are pid 1 of their own namespace
};

// The head of an encoded StartRequest. NUL-terminated strings follow: working directory, run
// folder, log file, argv, env ("NAME=value"), and for each reach "r" or "w" with the path behind
// it.
struct StartHeader {
  std::uint32_t version = kShimProtocolVersion;
  std::uint32_t argc = 0;
  std::uint32_t envc = 0;
  std::uint32_t reach_count = 0;
  std::uint32_t has_uid = 0;
  std::uint32_t uid = 0;     // and gid
  std::uint32_t python = 0;  // make model.sock and pass it as descriptor kModelSocketFd
};

struct StartRequest {
  struct Reach {
    std::string path;
    bool writable = false;
  };

  std::vector<std::string> argv;
  std::vector<std::string> env;  // "NAME=value"
  std::string working_directory;
  std::string run_dir;
  std::string log_file;
  std::vector<Reach> reach;  // bound in this order: outer paths before inner ones, links last
  std::uint32_t uid = 0;
  bool has_uid = false;
  bool python = false;
};

// Refuses what the shim could not take: an embedded NUL, too many strings, too many bytes.
Result<std::string> encode(const StartRequest& request);

// Walks the strings behind a StartHeader; next() is null at the end or when the last string is cut.
class StringWalk {
 public:
  StringWalk(const char* begin, const char* end) : at_(begin), end_(end) {}

  const char* next() {
    const char* begin = at_;
    while (at_ < end_ && *at_ != '\0') ++at_;
    if (at_ >= end_) return nullptr;
    ++at_;
    return begin;
  }

 private:
  const char* at_;
  const char* end_;
};

// ---- daemon → shim, on the control socket

enum class ShimCommandKind : std::uint32_t {
  signal = 1,     // to the main process
  kill_tree = 2,  // SIGKILL to every process of the tree until none is left
  status = 3,     // answered by a `status` report
};

struct ShimCommand {
  std::uint32_t version = kShimProtocolVersion;
  ShimCommandKind kind = ShimCommandKind::status;
  std::int32_t signal = 0;
  std::uint32_t reserved = 0;
};

// ---- spawner and shim → daemon, on the control socket

enum class ShimReportKind : std::uint32_t {
  spawned = 1,  // by the spawner: value is the shim's pid; comes with a pidfd of it
  started = 2,  // the command runs; comes with a pidfd of the main process
  failed = 3,   // nothing runs: value is an errno, text the step ("exec /opt/x")
  exited = 4,   // the main process ended: value is its wait status; the rest is killed
  empty = 5,    // no process of the tree is left and its log is complete
  status = 6,
};

struct ShimReport {
  std::uint32_t version = kShimProtocolVersion;
  ShimReportKind kind = ShimReportKind::status;
  std::int32_t value = 0;
  std::uint32_t reserved = 0;
  std::uint64_t log_bytes = 0;      // written to the log so far
  std::uint64_t dropped_bytes = 0;  // lost, because the disk was full
  char text[224] = {};
};

}  // namespace omni::protocol
