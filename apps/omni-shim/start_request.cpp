#include "start_request.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>

namespace omni::shim {
namespace {

bool read_list(protocol::StringWalk& strings, std::uint32_t count, char** list) {
  if (count > protocol::kMaxStartStrings) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* text = strings.next();
    if (!text) return false;
    list[i] = const_cast<char*>(text);  // execve's type; nobody writes through it
  }
  list[count] = nullptr;
  return true;
}

bool read_reach(protocol::StringWalk& strings, std::uint32_t count, Reach* list) {
  if (count > protocol::kMaxStartStrings) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* text = strings.next();
    if (!text || text[0] == '\0') return false;
    list[i] = {text + 1, text[0] == 'w'};
  }
  return true;
}

}  // namespace

bool read_start(int fd, Start& start, Failure& failure) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return failure.set("read", "the start request");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size < sizeof start.header || size > protocol::kMaxStartBytes) {
    return failure.set("read", "the start request", EMSGSIZE);
  }
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) return failure.set("map", "the start request");
  const char* bytes = static_cast<const char*>(memory);
  std::memcpy(&start.header, bytes, sizeof start.header);
  if (start.header.version != protocol::kShimProtocolVersion) {
    return failure.set("read", "the start request: other version", EPROTO);
  }
  protocol::StringWalk strings(bytes + sizeof start.header, bytes + size);
  start.working_directory = strings.next();
  start.run_dir = strings.next();
  start.log_file = strings.next();
  const bool whole = start.log_file && start.header.argc > 0 &&
                     read_list(strings, start.header.argc, start.argv) &&
                     read_list(strings, start.header.envc, start.envp) &&
                     read_reach(strings, start.header.reach_count, start.reach);
  return whole || failure.set("read", "the start request: cut short", EBADMSG);
}

}  // namespace omni::shim
