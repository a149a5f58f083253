// /ai/run for Python handlers: the handler's own form, whatever the task.
#pragma once

#include "gateway/task_adapter.h"

namespace omni::gateway {

// A dict is JSON, text is text, bytes are bytes. An iterator is SSE when the client asks for
// events; else its bytes or text run on, and its dicts make a JSON list.
std::unique_ptr<TaskAdapter> run_adapter(bool events);

}  // namespace omni::gateway
