#include "gateway/sse.h"

#include <boost/json.hpp>

namespace omni::gateway {
namespace {

namespace json = boost::json;

constexpr std::string_view kUsage = "\"usage\"";
constexpr std::size_t kLongestUsage = 4096;        // a usage object with details is ~300 bytes
constexpr std::size_t kLongestEvent = 256 * 1024;  // held back at most

std::uint64_t count_in(const json::object& usage, std::string_view name) {
  const json::value* value = usage.if_contains(name);
  if (!value || !value->is_number()) return 0;
  boost::system::error_code failure;
  const auto count = value->to_number<std::uint64_t>(failure);
  return failure ? 0 : count;
}

// Behind the last blank line, or 0.
std::size_t whole_events(std::string_view text) {
  for (std::size_t at = text.rfind('\n'); at != std::string_view::npos && at > 0;
       at = text.rfind('\n', at - 1)) {
    if (text[at - 1] == '\n') return at + 1;
    if (text[at - 1] == '\r' && at >= 2 && text[at - 2] == '\n') return at + 1;
  }
  return 0;
}

// Behind the first blank line of text that has one.
std::size_t first_event(std::string_view text) {
  for (std::size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at)) {
    ++at;
    if (text.substr(at, 1) == "\n") return at + 1;
    if (text.substr(at, 2) == "\r\n") return at + 2;
  }
  return text.size();
}

// A chunk with usage and without choices, as engines send it last with include_usage.
bool carries_usage_alone(std::string_view event) {
  if (event.find(kUsage) == std::string_view::npos || !event.starts_with("data:")) return false;
  event.remove_prefix(5);
  boost::system::error_code failure;
  const json::value chunk = json::parse(event, failure);
  if (failure || !chunk.is_object()) return false;
  const json::value* choices = chunk.get_object().if_contains("choices");
  const json::value* usage = chunk.get_object().if_contains("usage");
  return choices && choices->is_array() && choices->get_array().empty() && usage &&
         usage->is_object();
}

}  // namespace

std::optional<Usage> parse_usage(std::string_view object) {
  boost::system::error_code failure;
  const json::value parsed = json::parse(object, failure);
  if (failure || !parsed.is_object()) return std::nullopt;
  return Usage{count_in(parsed.get_object(), "prompt_tokens"),
               count_in(parsed.get_object(), "completion_tokens")};
}

void UsageTap::feed(std::string_view piece) {
  for (std::size_t at = 0; at < piece.size(); ++at) {
    if (state_ == State::searching && matched_ == 0) {
      // Nearly all bytes are skipped here: only a quote can begin the name.
      const std::size_t quote = piece.find('"', at);
      if (quote == std::string_view::npos) {
        escaped_ = piece.back() == '\\';
        return;
      }
      if (quote > at) escaped_ = piece[quote - 1] == '\\';
      at = quote;
    }
    step(piece[at]);
  }
}

void UsageTap::step(char c) {
  switch (state_) {
    case State::searching:
      if (c == kUsage[matched_] && !(matched_ == 0 && escaped_)) {
        if (++matched_ == kUsage.size()) {
          matched_ = 0;
          state_ = State::before_colon;
        }
      } else {
        matched_ = c == '"' && !escaped_ ? 1 : 0;
      }
      escaped_ = c == '\\';
      return;
    case State::before_colon:
      if (c == ':') {
        state_ = State::before_object;
      } else if (c != ' ') {
        state_ = State::searching;
      }
      return;
    case State::before_object:
      if (c == '{') {
        object_.clear();
        depth_ = 0;
        state_ = State::inside;
        collect(c);
      } else if (c != ' ') {
        state_ = State::searching;
      }
      return;
    case State::inside:
      collect(c);
      return;
  }
}

// Strings in a usage object hold no brackets; one that did would cost only this count.
void UsageTap::collect(char c) {
  object_ += c;
  if (c == '{') ++depth_;
  if (c == '}') --depth_;
  if (depth_ == 0) {
    if (auto usage = parse_usage(object_)) usage_ = usage;
    state_ = State::searching;
  } else if (object_.size() > kLongestUsage) {
    state_ = State::searching;
  }
}

std::string_view EventGate::feed(std::string_view piece) {
  if (held_.empty()) {
    const std::size_t whole = whole_events(piece);
    held_ = piece.substr(whole);
    piece = piece.substr(0, whole);
    if (whole > 0) torn_ = false;
  } else {
    held_ += piece;
    const std::size_t whole = whole_events(held_);
    out_.assign(held_, 0, whole);
    held_.erase(0, whole);
    piece = out_;
    if (whole > 0) torn_ = false;
  }
  if (hide_usage_ && !piece.empty()) piece = filter(piece);
  if (held_.size() <= kLongestEvent) return piece;
  torn_ = true;
  std::string all(piece);
  all += held_;
  held_.clear();
  out_ = std::move(all);
  return out_;
}

std::string_view EventGate::rest() {
  out_ = std::move(held_);
  held_.clear();
  return hide_usage_ ? filter(out_) : std::string_view(out_);
}

std::string_view EventGate::filter(std::string_view events) {
  if (events.find(kUsage) == std::string_view::npos) return events;
  std::string kept;
  while (!events.empty()) {
    const std::size_t length = first_event(events);
    const std::string_view one = events.substr(0, length);
    if (!carries_usage_alone(one)) kept += one;
    events.remove_prefix(length);
  }
  out_ = std::move(kept);
  return out_;
}

std::string event(std::string_view data) {
  std::string out = "data: ";
  for (char c : data) out += c == '\n' || c == '\r' ? ' ' : c;
  out += "\n\n";
  return out;
}

}  // namespace omni::gateway
