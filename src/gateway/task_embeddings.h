// Embeddings for Python handlers: OpenAI's forms of `input` become a list of strings, and the
// handler's vectors OpenAI's list, as numbers or base64.
#pragma once

#include "gateway/task_adapter.h"

namespace omni::gateway {

// `input` becomes a list of strings; token arrays are refused. The number of strings.
Result<std::size_t> normalise_embeddings(json::object& parameters);
// Whether base64 is asked for; takes the member away from the handler.
Result<bool> take_encoding_format(json::object& parameters);

std::unique_ptr<TaskAdapter> embeddings_adapter(AnswerIdentity identity, std::size_t inputs,
                                                bool base64);

}  // namespace omni::gateway
