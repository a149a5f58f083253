#include "gateway/task_transcription.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "gateway/json_body.h"

namespace omni::gateway {
namespace {

using engine::Item;
using engine::ItemKind;

struct Segment {
  double start = 0;
  double end = 0;
  std::string text;
};

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }

// Some models begin each segment with a space, others do not.
std::string joint(std::string_view before, std::string_view next) {
  const bool needed =
      !before.empty() && !next.empty() && !is_space(before.back()) && !is_space(next.front());
  return needed ? " " : "";
}

Result<std::string> string_in(const json::object& from, std::string_view name) {
  const json::value* value = from.if_contains(name);
  if (!value || !value->is_string()) {
    return unfit_answer(fmt::format("`{}` must be a string", name));
  }
  return std::string(std::string_view(value->get_string()));
}

Result<double> seconds_in(const json::object& from, std::string_view name) {
  const json::value* value = from.if_contains(name);
  boost::system::error_code failure;
  const double seconds = value ? value->to_number<double>(failure) : -1;
  if (failure || !(seconds >= 0) || !std::isfinite(seconds)) {
    return unfit_answer(fmt::format("a segment's `{}` must be seconds", name));
  }
  return seconds;
}

Result<Segment> segment_of(const json::object& from) {
  TRY(double start, seconds_in(from, "start"));
  TRY(double end, seconds_in(from, "end"));
  TRY(std::string text, string_in(from, "text"));
  return Segment{start, end, std::move(text)};
}

// "00:01:02,345"
std::string timestamp(double seconds, char point) {
  const auto ms = static_cast<std::int64_t>(std::llround(seconds * 1000));
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60,
                     point, ms % 1000);
}

class TranscriptionAdapter : public TaskAdapter {
 public:
  TranscriptionAdapter(AnswerIdentity identity, TranscriptFormat format, bool stream)
      : identity_(std::move(identity)), format_(format), stream_(stream) {}

  Result<Head> begin(const engine::ResponseStart&, FirstKind) override {
    if (stream_) return Head{"text/event-stream; charset=utf-8", true, true};
    switch (format_) {
      case TranscriptFormat::json:
      case TranscriptFormat::verbose_json:
        return Head{"application/json", false, false};
      case TranscriptFormat::vtt:
        return Head{"text/vtt; charset=utf-8", false, false};
      case TranscriptFormat::srt:
        return Head{"application/x-subrip; charset=utf-8", false, false};
      case TranscriptFormat::text:
        break;
    }
    return Head{"text/plain; charset=utf-8", false, false};
  }

  Result<std::string> item(Item item) override {
    if (item.kind != ItemKind::json) {
      TRY(std::string text, text_of(std::move(item)));
      return grow(text);
    }
    TRY(json::object given, object_of(item));
    note_usage(given);
    if (given.contains("start")) {
      CHECK(add_segment(given));
      return grow(segments_.back().text);
    }
    if (const json::value* language = given.if_contains("language")) language_ = *language;
    if (const json::value* duration = given.if_contains("duration")) duration_ = *duration;
    CHECK(add_segments(given));
    if (given.contains("text")) {
      TRY(std::string text, string_in(given, "text"));
      return grow(text);
    }
    std::string all;
    for (const Segment& segment : segments_) all += joint(all, segment.text) + segment.text;
    return grow(all);
  }

  Result<std::string> end(const json::object& trailer) override {
    const json::object* usage = note_usage(trailer);
    if (stream_) {
      json::object done{{"type", "transcript.text.done"}, {"text", trimmed(text_)}};
      if (usage) done["usage"] = *usage;
      return event(json::serialize(done));
    }
    switch (format_) {
      case TranscriptFormat::text:
        return trimmed(text_) + "\n";
      case TranscriptFormat::json: {
        json::object out{{"text", trimmed(text_)}};
        if (usage) out["usage"] = *usage;
        return json::serialize(out);
      }
      case TranscriptFormat::verbose_json:
        return verbose();
      case TranscriptFormat::srt:
        return subtitles("", ',', true);
      case TranscriptFormat::vtt:
        return subtitles("WEBVTT\n\n", '.', false);
    }
    return std::string();
  }

 private:
  Result<std::string> grow(const std::string& text) {
    const std::string delta = joint(text_, text) + text;
    text_ += delta;
    if (!stream_ || delta.empty()) return std::string();
    return event(fmt::format(R"({{"type":"transcript.text.delta","delta":{}}})", quote(delta)));
  }

  Result<void> add_segment(const json::object& given) {
    TRY(Segment segment, segment_of(given));
    segments_.push_back(std::move(segment));
    given_segments_.push_back(given);
    return {};
  }

  Result<void> add_segments(const json::object& given) {
    const json::value* segments = given.if_contains("segments");
    if (!segments || segments->is_null()) return {};
    if (!segments->is_array()) return unfit_answer("`segments` must be a list");
    for (const json::value& segment : segments->get_array()) {
      if (!segment.is_object()) return unfit_answer("`segments` must be a list of dicts");
      CHECK(add_segment(segment.get_object()));
    }
    return {};
  }

  std::string verbose() const {
    json::object out{{"task", "transcribe"}};
    if (!language_.is_null()) out["language"] = language_;
    if (!duration_.is_null()) {
      out["duration"] = duration_;
    } else if (!segments_.empty()) {
      out["duration"] = segments_.back().end;
    }
    out["text"] = trimmed(text_);
    json::array segments;
    for (const json::object& given : given_segments_) {
      json::object segment = given;
      segment.emplace("id", segments.size());
      segments.push_back(std::move(segment));
    }
    out["segments"] = std::move(segments);
    return json::serialize(out);
  }

  Result<std::string> subtitles(std::string_view heading, char point, bool numbered) const {
    if (segments_.empty() && !trimmed(text_).empty()) {
      return Error{ErrorCode::invalid_request,
                   fmt::format("model \"{}\" gives text without times: ask for response_format "
                               "json or text",
                               identity_.model)};
    }
    std::string out(heading);
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      if (numbered) out += fmt::format("{}\n", i + 1);
      out += fmt::format("{} --> {}\n{}\n\n", timestamp(segments_[i].start, point),
                         timestamp(segments_[i].end, point), trimmed(segments_[i].text));
    }
    return out;
  }

  AnswerIdentity identity_;
  TranscriptFormat format_;
  bool stream_;
  std::string text_;
  std::vector<Segment> segments_;
  std::vector<json::object> given_segments_;  // with what else the handler says of them
  json::value language_;
  json::value duration_;
};

bool is_true(std::string_view text) { return text == "true" || text == "1" || text == "True"; }

}  // namespace

Result<TranscriptFormat> parse_transcript_format(std::string_view name) {
  if (name == "json") return TranscriptFormat::json;
  if (name == "text") return TranscriptFormat::text;
  if (name == "verbose_json") return TranscriptFormat::verbose_json;
  if (name == "srt") return TranscriptFormat::srt;
  if (name == "vtt") return TranscriptFormat::vtt;
  return Error{
      ErrorCode::invalid_request,
      fmt::format("`response_format` is \"{}\": use json, text, verbose_json, srt or vtt", name)};
}

Result<TranscriptionOptions> transcription_options(
    const std::vector<std::pair<std::string, std::string>>& fields) {
  TranscriptionOptions options;
  for (const auto& [name, value] : fields) {
    if (name == "model") continue;
    if (name == "stream") {
      options.stream = is_true(value);
    } else if (name == "response_format") {
      TRY(options.format, parse_transcript_format(value));
    } else if (name == "temperature") {
      double number = 0;
      const char* end = value.data() + value.size();
      const auto parsed = std::from_chars(value.data(), end, number);
      if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(number)) {
        return Error{ErrorCode::invalid_request, "`temperature` must be a number"};
      }
      options.parameters["temperature"] = number;
    } else if (name.ends_with("[]")) {
      json::value& list = options.parameters[name.substr(0, name.size() - 2)];
      if (!list.is_array()) list = json::array();
      list.get_array().emplace_back(value);
    } else {
      options.parameters[name] = value;
    }
  }
  return options;
}

std::unique_ptr<TaskAdapter> transcription_adapter(AnswerIdentity identity, TranscriptFormat format,
                                                   bool stream) {
  return std::make_unique<TranscriptionAdapter>(std::move(identity), format, stream);
}

}  // namespace omni::gateway
