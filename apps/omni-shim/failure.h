// Why a start did not work: the step that failed and its errno.
#pragma once

#include <cerrno>
#include <cstdio>

namespace omni::shim {

struct Failure {
  int error = 0;
  char text[224] = {};

  // Always false, so that `return failure.set("mount", path);` ends a step.
  bool set(const char* step, const char* subject, int error_number = errno) {
    error = error_number;
    std::snprintf(text, sizeof text, "%s %s", step, subject);
    return false;
  }
};

}  // namespace omni::shim
