// Text to speech for Python handlers: bytes out as they are made, or as SSE events.
#pragma once

#include "gateway/task_adapter.h"

namespace omni::gateway {

struct SpeechOptions {
  std::string format;   // response_format; empty: whatever the handler makes
  bool events = false;  // stream_format: "sse"
};
// Checks OpenAI's body and makes it the handler's {input, voice, speed, format}.
Result<SpeechOptions> normalise_speech(json::object& parameters);

// A handler's bytes are WAV unless it says otherwise. WAV becomes raw samples when PCM is asked
// for; any other difference between what is asked for and what comes is refused.
std::unique_ptr<TaskAdapter> speech_adapter(AnswerIdentity identity, SpeechOptions options);

}  // namespace omni::gateway
