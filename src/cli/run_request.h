// What `omni run` sends for each task. Pure: model, input and parameters in, request out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "cli/daemon.h"

namespace omni::cli {

struct RunInput {
  std::string model;                    // as the user named it: an alias may mean more than a name
  std::string resolved;                 // the model's own name
  std::string content;                  // prompt, JSON or the file's bytes
  std::string filename;                 // of a file, for its type
  std::string system;                   // chat: the system message, or empty
  std::vector<std::string> parameters;  // "temperature=0.2"; the value is JSON, else text
  bool stream = true;
};

Result<Request> run_request(Task task, const RunInput& input);

// By the file's extension: "audio/wav"; application/octet-stream for others.
std::string_view media_type_of(std::string_view filename);
// Whether an answer of this type can be shown on a terminal.
bool is_text(std::string_view media_type);

}  // namespace omni::cli
