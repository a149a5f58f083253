#include "cli/fields.h"

#include <cmath>

namespace omni::cli {

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  const json::string* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string() : std::string(*text);
}

double number_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr || !value->is_number() ? 0 : value->to_number<double>();
}

std::int64_t integer_at(const json::object& object, std::string_view key) {
  return std::llround(number_at(object, key));
}

bool flag_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

const json::array& array_at(const json::object& object, std::string_view key) {
  static const json::array empty;
  const json::value* value = object.if_contains(key);
  return value == nullptr || !value->is_array() ? empty : value->get_array();
}

const json::object& object_at(const json::object& object, std::string_view key) {
  static const json::object empty;
  const json::value* value = object.if_contains(key);
  return value == nullptr ? empty : as_object(*value);
}

const json::object& as_object(const json::value& value) {
  static const json::object empty;
  return value.is_object() ? value.get_object() : empty;
}

}  // namespace omni::cli
