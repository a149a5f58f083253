#include "gateway/task_speech.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "gateway/base64.h"

namespace omni::gateway {
namespace {

struct AudioType {
  std::string_view type;
  std::string_view format;
};
constexpr std::array<AudioType, 12> kAudioTypes{{
    {"audio/wav", "wav"},
    {"audio/x-wav", "wav"},
    {"audio/wave", "wav"},
    {"audio/pcm", "pcm"},
    {"audio/l16", "pcm"},
    {"application/octet-stream", "pcm"},
    {"audio/mpeg", "mp3"},
    {"audio/mp3", "mp3"},
    {"audio/ogg", "opus"},
    {"audio/opus", "opus"},
    {"audio/aac", "aac"},
    {"audio/flac", "flac"},
}};

std::string_view format_of(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  for (const AudioType& known : kAudioTypes) {
    if (type.size() == known.type.size() &&
        std::ranges::equal(type, known.type, {}, [](char c) { return std::tolower(c); })) {
      return known.format;
    }
  }
  return {};
}

// Takes the header off a WAV file that comes in pieces.
class WavSamples {
 public:
  Result<std::string> feed(std::string_view piece) {
    if (in_data_) return std::string(piece);
    head_ += piece;
    std::size_t at = 12;  // "RIFF", size, "WAVE"
    if (head_.size() < at) return std::string();
    if (!head_.starts_with("RIFF") || head_.compare(8, 4, "WAVE") != 0) {
      return unfit_answer("the audio is no WAV file");
    }
    while (head_.size() >= at + 8) {
      if (head_.compare(at, 4, "data") == 0) {
        in_data_ = true;
        return head_.substr(at + 8);
      }
      std::uint32_t length = 0;
      std::memcpy(&length, head_.data() + at + 4, sizeof(length));
      at += 8 + std::size_t{length} + (length & 1);
    }
    if (head_.size() > kLongestHead) return unfit_answer("the WAV file has no samples");
    return std::string();
  }

 private:
  static constexpr std::size_t kLongestHead = 64 * 1024;
  std::string head_;
  bool in_data_ = false;
};

class SpeechAdapter : public TaskAdapter {
 public:
  SpeechAdapter(AnswerIdentity identity, SpeechOptions options)
      : identity_(std::move(identity)), options_(std::move(options)) {}

  Result<Head> begin(const engine::ResponseStart& start, FirstKind) override {
    std::string type = start.content_type.empty() ? "audio/wav" : start.content_type;
    const std::string_view given = format_of(type);
    if (!options_.format.empty() && options_.format != given) {
      if (options_.format != "pcm" || given != "wav") return wrong_format(type);
      strip_ = true;
      type = "audio/pcm";
    }
    if (options_.events) return Head{"text/event-stream; charset=utf-8", true, true};
    // A plain answer is one item, so that its length is known; an iterator streams.
    return Head{std::move(type), start.streaming, false};
  }

  Result<std::string> item(engine::Item item) override {
    if (item.kind != engine::ItemKind::bytes) return unfit_answer("audio must be bytes");
    std::string bytes = std::move(item.data);
    if (strip_) {
      TRY(bytes, samples_.feed(bytes));
    }
    if (!options_.events || bytes.empty()) return bytes;
    return event(fmt::format(R"({{"type":"speech.audio.delta","audio":"{}"}})", base64(bytes)));
  }

  Result<std::string> end(const json::object& trailer) override {
    const json::object* usage = note_usage(trailer);
    if (!options_.events) return std::string();
    json::object done{{"type", "speech.audio.done"}};
    if (usage) done["usage"] = *usage;
    return event(json::serialize(done));
  }

 private:
  Error wrong_format(std::string_view type) const {
    return {ErrorCode::invalid_request,
            fmt::format("model \"{}\" makes {}, not `response_format` {}: ask for wav or pcm",
                        identity_.model, type, options_.format)};
  }

  AnswerIdentity identity_;
  SpeechOptions options_;
  bool strip_ = false;
  WavSamples samples_;
};

Result<std::string> take_text(json::object& parameters, std::string_view name) {
  const json::value* value = parameters.if_contains(name);
  if (!value || value->is_null()) return std::string();
  if (!value->is_string()) {
    return Error{ErrorCode::invalid_request, fmt::format("`{}` must be a string", name)};
  }
  std::string text(std::string_view(value->get_string()));
  parameters.erase(name);
  return text;
}

}  // namespace

Result<SpeechOptions> normalise_speech(json::object& parameters) {
  const json::value* input = parameters.if_contains("input");
  if (!input || !input->is_string() || input->get_string().empty()) {
    return Error{ErrorCode::invalid_request, "`input` must be the text to speak"};
  }
  SpeechOptions options;
  TRY(options.format, take_text(parameters, "response_format"));
  TRY(std::string stream_format, take_text(parameters, "stream_format"));
  if (!stream_format.empty() && stream_format != "audio" && stream_format != "sse") {
    return Error{ErrorCode::invalid_request, "`stream_format` must be \"audio\" or \"sse\""};
  }
  options.events = stream_format == "sse";
  parameters["format"] = options.format.empty() ? "wav" : options.format;
  return options;
}

std::unique_ptr<TaskAdapter> speech_adapter(AnswerIdentity identity, SpeechOptions options) {
  return std::make_unique<SpeechAdapter>(std::move(identity), std::move(options));
}

}  // namespace omni::gateway
