// Speech to text for Python handlers: the handler gives {text, segments} or yields segments; the
// client chooses how it reads them.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "gateway/task_adapter.h"

namespace omni::gateway {

enum class TranscriptFormat : std::uint8_t { json, text, verbose_json, srt, vtt };
Result<TranscriptFormat> parse_transcript_format(std::string_view name);

struct TranscriptionOptions {
  TranscriptFormat format = TranscriptFormat::json;
  bool stream = false;
  json::object parameters;  // what the handler gets
};
// A form's fields → what the client wants and what the handler gets: numbers as numbers,
// `name[]` as lists.
Result<TranscriptionOptions> transcription_options(
    const std::vector<std::pair<std::string, std::string>>& fields);

std::unique_ptr<TaskAdapter> transcription_adapter(AnswerIdentity identity, TranscriptFormat format,
                                                   bool stream);

}  // namespace omni::gateway
