// Heads of HTTP/1.1 messages as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace omni::http {

struct Header {
  std::string name;
  std::string value;
};

// Case-insensitive look-ups; repeated fields keep their order.
class Headers {
 public:
  void add(std::string name, std::string value) {
    if (fields_.capacity() == 0) fields_.reserve(kUsual);
    fields_.push_back({std::move(name), std::move(value)});
  }
  void set(std::string_view name, std::string value);
  void remove(std::string_view name);
  template <typename Predicate>
  void remove_if(Predicate predicate) {
    std::erase_if(fields_, std::move(predicate));
  }
  // The first field's value, or empty.
  std::string_view get(std::string_view name) const;
  bool has(std::string_view name) const;
  // Whether a comma-separated list field holds this token, case-insensitively.
  bool has_token(std::string_view name, std::string_view token) const;
  const std::vector<Header>& fields() const { return fields_; }
  // Keeps the memory: a connection parses every head into the same object.
  void clear() { fields_.clear(); }
  void reserve(std::size_t count) { fields_.reserve(count); }

 private:
  static constexpr std::size_t kUsual = 8;  // of most heads

  std::vector<Header> fields_;
};

bool iequals(std::string_view a, std::string_view b);
// Whether this may stand on a header line: the name is a token, the value has no control character
// but tab. What fails here could smuggle a second header or message.
bool is_field_name(std::string_view name);
bool is_field_value(std::string_view value);

struct RequestHead {
  std::string method;  // "GET"
  std::string target;  // origin form, as sent: "/v1/models?x=1"
  Headers headers;
  bool http_1_0 = false;
  bool keep_alive = true;
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool expect_continue = false;

  std::string_view path() const;   // target before '?'
  std::string_view query() const;  // after '?'
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

struct ResponseHead {
  int status = 200;
  Headers headers;
  // Set by whoever makes the response: a length, or neither for a body of unknown length (chunked,
  // or until close for HTTP/1.0).
  std::optional<std::uint64_t> content_length;
};

std::string_view reason_phrase(int status);
// %XX decoded; '+' stays. Nothing when an escape is broken.
std::optional<std::string> percent_decode(std::string_view text);
std::optional<std::string> query_parameter(std::string_view query, std::string_view name);

}  // namespace omni::http
