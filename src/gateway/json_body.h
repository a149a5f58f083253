// JSON request bodies: checked in full, and the few members the gateway must see or change located
// by byte range, so that a body goes on to an engine unparsed and otherwise untouched.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace omni::gateway {

// Deeper nesting is refused: every later parser of the same body recurses.
inline constexpr std::size_t kMaxJsonDepth = 128;

struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct JsonFacts {
  std::size_t first_member = 0;  // just behind the opening brace: where a member can be added
  bool empty = true;             // an object without members
  std::optional<std::string> model;
  std::optional<ByteRange> model_value;
  bool stream = false;
  std::optional<ByteRange> stream_value;
  bool include_usage = false;  // stream_options.include_usage
  std::optional<ByteRange> stream_options_value;
};

// Keeps its parser's memory from body to body: one per I/O thread.
class JsonScanner {
 public:
  JsonScanner();
  ~JsonScanner();

  // The whole body must be one JSON object in UTF-8 without lone surrogates: engines answer 500 to
  // less. invalid_json names the offset. A second `model`, `stream` or `stream_options` is refused,
  // since parsers disagree on which one counts. The body's capacity may grow.
  Result<JsonFacts> scan(std::string& body);
  // Whether the body that was scanned last, without an error, has the member. Not across an await:
  // another request's body may have come between.
  bool has_member(std::string_view name) const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// Changes of members of a scanned body, applied in one pass.
class JsonEdit {
 public:
  explicit JsonEdit(const JsonFacts& facts) : facts_(facts) {}

  // Sets a member to a JSON value: in place of the old value, or as a new first member.
  void set(std::string_view name, const std::optional<ByteRange>& old, std::string value);
  bool empty() const { return replacements_.empty() && added_.empty(); }
  std::string apply(std::string body) const;

 private:
  struct Replacement {
    ByteRange range;
    std::string value;
  };
  const JsonFacts& facts_;
  std::vector<Replacement> replacements_;
  std::string added_;
};

// A JSON string literal.
std::string quote(std::string_view text);

}  // namespace omni::gateway
