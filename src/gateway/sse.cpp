#include "gateway/sse.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cstring>

namespace omni::gateway {
namespace {

namespace json = boost::json;

constexpr std::string_view kUsage = "\"usage\"";
constexpr std::size_t kLongestUsage = 4096;        // a usage object with details is ~300 bytes
constexpr std::size_t kLongestEvent = 256 * 1024;  // held back at most

// `name` with its quotes.
std::uint64_t count_in(std::string_view usage, std::string_view name) {
  std::size_t at = usage.find(name);
  if (at == std::string_view::npos) return 0;
  at = usage.find_first_not_of(" \t\r\n:", at + name.size());
  if (at == std::string_view::npos) return 0;
  std::uint64_t count = 0;
  const char* end = usage.data() + usage.size();
  return std::from_chars(usage.data() + at, end, count).ec == std::errc() ? count : 0;
}

// Where the name begins, at `from` or later, its quotes not being those of a text inside a string;
// or npos. `escaped`: the text comes behind a backslash.
std::size_t find_name(std::string_view text, std::size_t from, bool escaped) {
  for (;;) {
    const void* found =
        ::memmem(text.data() + from, text.size() - from, kUsage.data(), kUsage.size());
    if (found == nullptr) return std::string_view::npos;
    const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    if (!(at == 0 ? escaped : text[at - 1] == '\\')) return at;
    from = at + 1;
  }
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

Usage parse_usage(std::string_view object) {
  return {count_in(object, "\"prompt_tokens\""), count_in(object, "\"completion_tokens\"")};
}

void UsageTap::feed(std::string_view piece) {
  while (!piece.empty()) {
    switch (state_) {
      case State::searching:
        piece.remove_prefix(search(piece));
        break;
      case State::before_colon:
        piece.remove_prefix(expect(':', State::before_object, piece));
        break;
      case State::before_object:
        piece.remove_prefix(expect('{', State::inside, piece));
        break;
      case State::inside:
        piece.remove_prefix(collect(piece));
        break;
    }
  }
}

std::size_t UsageTap::search(std::string_view piece) {
  // First one that begins in the pieces before, then one of this piece.
  std::string seam = tail_;
  seam += piece.substr(0, kUsage.size() - 1);
  std::size_t before = tail_.size();
  std::size_t at = find_name(seam, before - std::min(before, kUsage.size() - 1), false);
  if (at == std::string::npos) {
    before = 0;
    at = find_name(piece, 0, tail_.ends_with('\\'));
  }
  if (at != std::string::npos) {
    tail_.clear();
    state_ = State::before_colon;
    return at + kUsage.size() - before;
  }
  // A name may have begun here; the byte before it says whether it is inside a string.
  tail_ += piece.size() > kUsage.size() ? piece.substr(piece.size() - kUsage.size()) : piece;
  if (tail_.size() > kUsage.size()) tail_.erase(0, tail_.size() - kUsage.size());
  return piece.size();
}

std::size_t UsageTap::expect(char wanted, State next, std::string_view piece) {
  const std::size_t at = std::min(piece.find_first_not_of(' '), piece.size());
  if (at == piece.size()) return at;
  if (piece[at] != wanted) {
    state_ = State::searching;
    return at;
  }
  state_ = next;
  object_.clear();
  depth_ = 1;
  return at + 1;
}

// Strings in a usage object hold no brackets; one that did would cost only this count.
std::size_t UsageTap::collect(std::string_view piece) {
  std::size_t end = 0;
  while (depth_ > 0 && end < piece.size()) {
    const char c = piece[end++];
    if (c == '{') ++depth_;
    if (c == '}') --depth_;
  }
  object_ += piece.substr(0, end);
  if (depth_ == 0) usage_ = parse_usage(object_);
  if (depth_ == 0 || object_.size() > kLongestUsage) state_ = State::searching;
  return end;
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
