// Server-sent events on their way through, without parsing each one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace omni::gateway {

struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
};

// {"prompt_tokens": 3, "completion_tokens": 5, ...} as text; what is missing counts 0.
Usage parse_usage(std::string_view object);

// Reads the token counts out of an answer that passes by in pieces, SSE or plain JSON: the last
// `"usage": {...}` counts.
class UsageTap {
 public:
  void feed(std::string_view piece);
  const std::optional<Usage>& usage() const { return usage_; }

 private:
  enum class State : std::uint8_t { searching, before_colon, before_object, inside };
  // Each gives the number of bytes it has dealt with.
  std::size_t search(std::string_view piece);
  std::size_t expect(char wanted, State next, std::string_view piece);
  std::size_t collect(std::string_view piece);

  State state_ = State::searching;
  std::string tail_;  // the last bytes of the pieces before: the name may straddle them
  std::size_t depth_ = 0;
  std::string object_;
  std::optional<Usage> usage_;
};

// Lets only whole events pass, so that an error event can follow whatever the engine leaves
// unfinished. Can hide the event that carries nothing but usage, which the client did not ask for.
class EventGate {
 public:
  explicit EventGate(bool hide_usage) : hide_usage_(hide_usage) {}

  // What may go out now; valid until the next call.
  std::string_view feed(std::string_view piece);
  // At the stream's proper end: what no blank line has closed.
  std::string_view rest();
  // An event was too long to be held and has begun to pass.
  bool torn() const { return torn_; }

 private:
  std::string_view filter(std::string_view events);

  bool hide_usage_;
  bool torn_ = false;
  std::string held_;  // the beginning of an event
  std::string out_;
};

// "data: ...\n\n". An event's data ends at a line's end: line ends, which JSON has only between its
// tokens, become spaces.
std::string event(std::string_view data);

}  // namespace omni::gateway
