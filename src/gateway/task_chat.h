// Chat and text completion for Python handlers, in OpenAI's dialect.
#pragma once

#include "gateway/task_adapter.h"

namespace omni::gateway {

struct ChatShape {
  bool completion = false;     // /v1/completions: `text` instead of a message
  bool stream = false;         // SSE chunks
  bool include_usage = false;  // a chunk of usage at the stream's end
};

// Takes text, a dict with `choices`, a dict with `content` (or `text`), or an iterator of these.
std::unique_ptr<TaskAdapter> chat_adapter(AnswerIdentity identity, ChatShape shape);

// Makes the body of /v1/completions fit a chat handler: the prompt becomes a user's message.
Result<void> completion_as_chat(json::object& parameters);
// A prompt is a string, or a list with one.
Result<std::string> prompt_of(const json::object& parameters);

}  // namespace omni::gateway
