// Readers of single values: what they take, in words, and how it is checked and stored. Private to
// this module.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace toml {
inline namespace v3 {
class node;
class table;
}  // namespace v3
}  // namespace toml

namespace omni {

// `read` stores the value or says what is wrong with it.
struct ValueReader {
  std::string type;
  std::function<Result<void>(const toml::node&)> read;
};

inline constexpr Duration kDay = std::chrono::hours(24);

// Readers store into the variable they are given. Ranges are inclusive.
ValueReader flag(bool& into);
ValueReader count(std::uint32_t& into, std::uint32_t min, std::uint32_t max);
ValueReader integer(std::function<void(std::int64_t)> store, std::int64_t min, std::int64_t max);
ValueReader integer(std::int32_t& into, std::int32_t min, std::int32_t max);
ValueReader number(double& into, double min, double max);
ValueReader duration(Duration& into, Duration min, Duration max);
ValueReader bytes(std::function<void(Bytes)> store, Bytes min);
ValueReader bytes(Bytes& into, Bytes min);
// `check` says what is wrong with the text, or nothing.
using TextCheck = std::function<std::string(std::string_view)>;
ValueReader text(std::string& into, TextCheck check, std::string type = "string");
ValueReader texts(std::vector<std::string>& into, TextCheck check,
                  std::string type = "array of strings");
ValueReader text_map(std::map<std::string, std::string>& into, TextCheck check_name);
// A table of any values, each as JSON text.
ValueReader json_map(std::map<std::string, std::string>& into, TextCheck check_name);
// One of `names`; `store` gets its index.
ValueReader choice(std::vector<std::string_view> names, std::function<void(std::size_t)> store);
// Two integers, the first not above the second.
ValueReader integer_range(std::uint32_t& first, std::uint32_t& last, std::uint32_t min,
                          std::uint32_t max);

TextCheck any_text();
TextCheck non_empty();

// The two errors of this module: any, and "must be WANTED, not FOUND".
Error bad(std::string message);
Error wrong_type(std::string_view wanted, const toml::node& node);

}  // namespace omni
