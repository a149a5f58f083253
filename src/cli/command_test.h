// Runs the command line inside a test: its streams are files in memory, and it talks to a daemon on
// another thread.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/fake_daemon.h"

namespace omni::cli {

struct Outcome {
  int exit_code = 0;
  std::string out;
  std::string err;
};

inline std::string content_of(const Fd& file) {
  std::string content(static_cast<std::size_t>(::lseek(file.get(), 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(file.get(), content.data(), content.size(), 0),
            static_cast<ssize_t>(content.size()));
  return content;
}

inline Fd file_in_memory(std::string_view content = {}) {
  Fd file(::memfd_create("stream", MFD_CLOEXEC));
  EXPECT_EQ(::pwrite(file.get(), content.data(), content.size(), 0),
            static_cast<ssize_t>(content.size()));
  return file;
}

inline int run_arguments(std::vector<std::string> arguments, Streams streams,
                         const ServeFn& serve = {}) {
  std::vector<const char*> argv{"omni"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return run(static_cast<int>(argv.size()), argv.data(), serve, streams);
}

class CommandTest : public testing::Test {
 protected:
  // Whatever runs on this machine is not found by a test.
  CommandTest() { ::unsetenv("OMNI_SOCKET"); }

  void start_daemon() { ASSERT_NO_FATAL_FAILURE(daemon_.start()); }

  // Without a daemon's place.
  Outcome run_plain(std::vector<std::string> arguments, std::string_view input = {},
                    const ServeFn& serve = {}) {
    const Fd in = file_in_memory(input);
    const Fd out = file_in_memory();
    const Fd err = file_in_memory();
    Outcome outcome;
    outcome.exit_code = run_arguments(std::move(arguments),
                                      {.in = in.get(), .out = out.get(), .err = err.get()}, serve);
    outcome.out = content_of(out);
    outcome.err = content_of(err);
    return outcome;
  }
  // Against the test's daemon.
  Outcome omni(std::vector<std::string> arguments, std::string_view input = {}) {
    arguments.insert(arguments.end(), {"--socket", daemon_.socket()});
    return run_plain(std::move(arguments), input);
  }

  TestFolder folder_;
  FakeDaemon daemon_{folder_.path() / "run"};
};

}  // namespace omni::cli
