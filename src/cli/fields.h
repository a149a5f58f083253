// Fields of the daemon's JSON. A missing or odd one is empty or zero: the daemon may be older or
// newer than this program.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace omni::cli {

namespace json = boost::json;

std::string text_at(const json::object& object, std::string_view key);
double number_at(const json::object& object, std::string_view key);
std::int64_t integer_at(const json::object& object, std::string_view key);
bool flag_at(const json::object& object, std::string_view key);
const json::array& array_at(const json::object& object, std::string_view key);
const json::object& object_at(const json::object& object, std::string_view key);
// The value as an object, or an empty one.
const json::object& as_object(const json::value& value);

}  // namespace omni::cli
