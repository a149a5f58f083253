// The endpoints that need a model: read the body, find the model, decide the body plan, and serve
// on the model's engine.
#pragma once

#include "gateway/request.h"

namespace omni::gateway {

// /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/audio/speech
asio::awaitable<Result<void>> answer_json_task(Request& request);
// /v1/audio/transcriptions
asio::awaitable<Result<void>> answer_transcription(Request& request);
asio::awaitable<Result<void>> answer_image_edit(Request& request);
// /ai/run/{model}
asio::awaitable<Result<void>> answer_run(Request& request);
// /upstream/{model}/...
asio::awaitable<Result<void>> answer_upstream(Request& request);

}  // namespace omni::gateway
