#include "gateway/json_body.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

namespace omni::gateway {
namespace {

namespace dom = simdjson::dom;
namespace json = boost::json;

// Steps over the members of an object that is known to be valid JSON: what remains to be done is
// to tell strings from brackets.
class MemberCursor {
 public:
  explicit MemberCursor(std::string_view text) : text_(text), at_(text.find('{') + 1) {}

  std::size_t position() const { return at_; }

  // The value of the next member. Called once per member.
  ByteRange next_value() {
    at_ = text_.find('"', at_);
    skip_string();
    at_ = text_.find(':', at_) + 1;
    skip_space();
    const std::size_t begin = at_;
    skip_value();
    return {begin, at_};
  }

 private:
  void skip_space() {
    while (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  // To behind the quote that an even number of backslashes stands before.
  void skip_string() {
    for (;;) {
      at_ = text_.find('"', at_ + 1);
      std::size_t before = at_;
      while (text_[before - 1] == '\\') --before;
      if ((at_ - before) % 2 == 0) break;
    }
    ++at_;
  }

  void skip_value() {
    if (text_[at_] == '"') return skip_string();
    if (text_[at_] != '{' && text_[at_] != '[') {
      at_ = text_.find_first_of(",} \t\r\n", at_);
      return;
    }
    std::size_t depth = 0;
    do {
      at_ = text_.find_first_of("\"{}[]", at_);
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
        continue;
      }
      depth += c == '{' || c == '[' ? 1 : -1;
      ++at_;
    } while (depth > 0);
  }

  std::string_view text_;
  std::size_t at_;
};

std::optional<unsigned> code_unit(std::string_view text, std::size_t at) {
  if (text.substr(at, 2) != "\\u" || text.size() < at + 6) return std::nullopt;
  unsigned unit = 0;
  const char* begin = text.data() + at + 2;
  auto [end, failure] = std::from_chars(begin, begin + 4, unit, 16);
  if (failure != std::errc() || end != begin + 4) return std::nullopt;
  return unit;
}

// The offset of a \uD800-\uDFFF escape that is no half of a pair. simdjson lets some pass, and
// engines fail on them.
std::optional<std::size_t> lone_surrogate(std::string_view text) {
  for (std::size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at)) {
    const auto unit = code_unit(text, at);
    if (!unit || *unit < 0xD800 || *unit > 0xDFFF) {
      at += 2;
      continue;
    }
    const auto low = code_unit(text, at + 6);
    if (*unit > 0xDBFF || !low || *low < 0xDC00 || *low > 0xDFFF) return at;
    at += 12;
  }
  return std::nullopt;
}

Error half_a_pair(std::size_t offset) {
  return {ErrorCode::invalid_json,
          fmt::format("the body has half a surrogate pair at byte {}", offset)};
}

// simdjson says that a body is wrong, not where: the slow parser finds the place.
Error invalid_json(std::string_view body, simdjson::error_code code) {
  if (code == simdjson::DEPTH_ERROR) {
    return {ErrorCode::invalid_json,
            fmt::format("the body is nested deeper than {} levels", kMaxJsonDepth)};
  }
  if (auto offset = lone_surrogate(body)) return half_a_pair(*offset);
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::stream_parser parser({}, options);
  boost::system::error_code failure;
  const std::size_t offset = parser.write_some(body.data(), body.size(), failure);
  const bool trailing = !failure && parser.done() && offset < body.size();
  if (!failure && !trailing) parser.finish(failure);
  if (!failure && !trailing) {
    return {ErrorCode::invalid_json,
            fmt::format("the body is not valid JSON: {}", simdjson::error_message(code))};
  }
  return {ErrorCode::invalid_json,
          fmt::format("the body is not valid JSON: {} at byte {}",
                      trailing ? "text after the document" : failure.message(), offset)};
}

Error wrong_type(std::string_view name, std::string_view wanted) {
  return {ErrorCode::invalid_request, fmt::format("`{}` must be {}", name, wanted)};
}

Result<void> note_model(JsonFacts& facts, dom::element value, ByteRange range) {
  std::string_view name;
  if (value.get(name) != simdjson::SUCCESS) return wrong_type("model", "a string");
  facts.model = std::string(name);
  facts.model_value = range;
  return {};
}

Result<void> note_stream(JsonFacts& facts, dom::element value, ByteRange range) {
  facts.stream_value = range;
  if (value.is_null()) return {};
  if (value.get(facts.stream) != simdjson::SUCCESS) return wrong_type("stream", "true or false");
  return {};
}

Result<void> note_stream_options(JsonFacts& facts, dom::element value, ByteRange range) {
  facts.stream_options_value = range;
  if (value.is_null()) return {};
  dom::object options;
  if (value.get(options) != simdjson::SUCCESS) return wrong_type("stream_options", "an object");
  bool wanted = false;
  if (options["include_usage"].get(wanted) == simdjson::SUCCESS) facts.include_usage = wanted;
  return {};
}

}  // namespace

struct JsonScanner::Parser {
  dom::parser dom;
  dom::object members;  // of the last body
};

JsonScanner::JsonScanner() : parser_(std::make_unique<Parser>()) {}
JsonScanner::~JsonScanner() = default;

Result<JsonFacts> JsonScanner::scan(std::string& body) {
  // The parser looks at the padding behind a body: what is there must not depend on chance.
  const std::size_t size = body.size();
  body.resize(size + simdjson::SIMDJSON_PADDING);
  body.resize(size);
  if (parser_->dom.capacity() < body.size() || parser_->dom.max_depth() != kMaxJsonDepth) {
    const std::size_t capacity = std::max<std::size_t>(body.size(), 64 * 1024);
    if (auto failure = parser_->dom.allocate(capacity, kMaxJsonDepth)) {
      return Error{ErrorCode::overloaded, simdjson::error_message(failure)};
    }
  }
  dom::element document;
  if (auto failure = parser_->dom.parse(body.data(), body.size(), false).get(document)) {
    return invalid_json(body, failure);
  }
  if (auto offset = lone_surrogate(body)) return half_a_pair(*offset);
  dom::object members;
  if (document.get(members) != simdjson::SUCCESS) {
    return Error{ErrorCode::invalid_json, "the body must be a JSON object"};
  }

  JsonFacts facts;
  MemberCursor cursor(body);
  facts.first_member = cursor.position();
  for (auto [key, value] : members) {
    facts.empty = false;
    const ByteRange range = cursor.next_value();
    const bool twice = (key == "model" && facts.model_value) ||
                       (key == "stream" && facts.stream_value) ||
                       (key == "stream_options" && facts.stream_options_value);
    if (twice) return Error{ErrorCode::invalid_json, fmt::format("`{}` is given twice", key)};
    if (key == "model") CHECK(note_model(facts, value, range));
    if (key == "stream") CHECK(note_stream(facts, value, range));
    if (key == "stream_options") CHECK(note_stream_options(facts, value, range));
  }
  parser_->members = members;
  return facts;
}

bool JsonScanner::has_member(std::string_view name) const {
  return parser_->members.at_key(name).error() == simdjson::SUCCESS;
}

void JsonEdit::set(std::string_view name, const std::optional<ByteRange>& old, std::string value) {
  if (old) {
    replacements_.push_back({*old, std::move(value)});
  } else {
    added_ += fmt::format("{}{}:{}", added_.empty() ? "" : ",", quote(name), value);
  }
}

std::string JsonEdit::apply(std::string body) const {
  if (empty()) return body;
  auto replacements = replacements_;
  if (!added_.empty()) {
    const ByteRange here{facts_.first_member, facts_.first_member};
    replacements.push_back({here, facts_.empty ? added_ : added_ + ","});
  }
  std::ranges::sort(replacements, {}, [](const Replacement& r) { return r.range.begin; });

  std::string out;
  std::size_t copied = 0;
  for (const Replacement& replacement : replacements) {
    out.append(body, copied, replacement.range.begin - copied);
    out += replacement.value;
    copied = replacement.range.end;
  }
  out.append(body, copied);
  return out;
}

std::string quote(std::string_view text) { return json::serialize(json::string_view(text)); }

}  // namespace omni::gateway
