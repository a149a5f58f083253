#include "config/readers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "base/text.h"

namespace omni {
namespace {

Result<std::string> read_text(const toml::node& node, const TextCheck& check) {
  const auto* value = node.as_string();
  if (value == nullptr) return wrong_type("a string", node);
  // A NUL would cut the text short wherever the system takes it: paths, arguments, environment.
  if (value->get().find('\0') != std::string::npos) return bad("must not hold a NUL character");
  if (std::string problem = check(value->get()); !problem.empty()) return bad(std::move(problem));
  return value->get();
}

}  // namespace

Error bad(std::string message) { return {ErrorCode::invalid_config, std::move(message)}; }

Error wrong_type(std::string_view wanted, const toml::node& node) {
  std::string_view found = "a table";
  switch (node.type()) {
    case toml::node_type::string:
      found = "a string";
      break;
    case toml::node_type::integer:
      found = "an integer";
      break;
    case toml::node_type::floating_point:
      found = "a number";
      break;
    case toml::node_type::boolean:
      found = "a boolean";
      break;
    case toml::node_type::array:
      found = "an array";
      break;
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      found = "a date or time";
      break;
    default:
      break;
  }
  return bad(fmt::format("must be {}, not {}", wanted, found));
}

TextCheck any_text() {
  return [](std::string_view) { return std::string(); };
}

TextCheck non_empty() {
  return [](std::string_view value) { return value.empty() ? "must not be empty" : std::string(); };
}

ValueReader flag(bool& into) {
  return {"boolean", [&into](const toml::node& node) -> Result<void> {
            const auto* value = node.as_boolean();
            if (value == nullptr) return wrong_type("true or false", node);
            into = value->get();
            return {};
          }};
}

ValueReader integer(std::function<void(std::int64_t)> store, std::int64_t min, std::int64_t max) {
  return {fmt::format("integer, {} to {}", min, max),
          [store = std::move(store), min, max](const toml::node& node) -> Result<void> {
            const auto* value = node.as_integer();
            if (value == nullptr) return wrong_type("an integer", node);
            if (value->get() < min || value->get() > max) {
              return bad(fmt::format("{} is out of range, {} to {}", value->get(), min, max));
            }
            store(value->get());
            return {};
          }};
}

ValueReader integer(std::int32_t& into, std::int32_t min, std::int32_t max) {
  return integer([&into](std::int64_t value) { into = static_cast<std::int32_t>(value); }, min,
                 max);
}

ValueReader count(std::uint32_t& into, std::uint32_t min, std::uint32_t max) {
  return integer([&into](std::int64_t value) { into = static_cast<std::uint32_t>(value); }, min,
                 max);
}

ValueReader number(double& into, double min, double max) {
  return {fmt::format("number, {} to {}", min, max),
          [&into, min, max](const toml::node& node) -> Result<void> {
            if (!node.is_number()) return wrong_type("a number", node);
            const double value = node.value<double>().value();
            if (!(value >= min && value <= max)) {
              return bad(fmt::format("{} is out of range, {} to {}", value, min, max));
            }
            into = value;
            return {};
          }};
}

ValueReader duration(Duration& into, Duration min, Duration max) {
  return {fmt::format("duration, {} to {}", to_string(min), to_string(max)),
          [&into, min, max](const toml::node& node) -> Result<void> {
            const auto* value = node.as_string();
            if (value == nullptr) return wrong_type("a duration like \"30s\"", node);
            auto parsed = parse_duration(value->get());
            if (!parsed.ok()) return bad(parsed.error().message);
            if (*parsed < min || *parsed > max) {
              return bad(fmt::format("\"{}\" is out of range, {} to {}", value->get(),
                                     to_string(min), to_string(max)));
            }
            into = *parsed;
            return {};
          }};
}

ValueReader bytes(std::function<void(Bytes)> store, Bytes min) {
  return {fmt::format("size, at least {}", to_string(min)),
          [store = std::move(store), min](const toml::node& node) -> Result<void> {
            Bytes value;
            if (const auto* plain = node.as_integer()) {
              value = Bytes(plain->get());
            } else if (const auto* with_unit = node.as_string()) {
              auto parsed = parse_bytes(with_unit->get());
              if (!parsed.ok()) return bad(parsed.error().message);
              value = *parsed;
            } else {
              return wrong_type("a size like \"480MiB\"", node);
            }
            if (value < min) {
              return bad(fmt::format("{} is too little, at least {} is needed", to_string(value),
                                     to_string(min)));
            }
            store(value);
            return {};
          }};
}

ValueReader bytes(Bytes& into, Bytes min) {
  return bytes([&into](Bytes value) { into = value; }, min);
}

ValueReader text(std::string& into, TextCheck check, std::string type) {
  return {std::move(type),
          [&into, check = std::move(check)](const toml::node& node) -> Result<void> {
            TRY(into, read_text(node, check));
            return {};
          }};
}

ValueReader texts(std::vector<std::string>& into, TextCheck check, std::string type) {
  return {std::move(type),
          [&into, check = std::move(check)](const toml::node& node) -> Result<void> {
            const toml::array* values = node.as_array();
            if (values == nullptr) return wrong_type("an array of strings", node);
            std::vector<std::string> read;
            for (const toml::node& element : *values) {
              TRY(std::string value, read_text(element, check));
              read.push_back(std::move(value));
            }
            into = std::move(read);
            return {};
          }};
}

ValueReader text_map(std::map<std::string, std::string>& into, TextCheck check_name) {
  return {"table of strings",
          [&into, check_name = std::move(check_name)](const toml::node& node) -> Result<void> {
            const toml::table* values = node.as_table();
            if (values == nullptr) return wrong_type("a table of strings", node);
            std::map<std::string, std::string> read;
            for (const auto& [name, value] : *values) {
              if (std::string problem = check_name(name.str()); !problem.empty()) {
                return bad(std::move(problem));
              }
              auto content = read_text(value, any_text());
              if (!content.ok()) {
                return bad(fmt::format("{} {}", name.str(), content.error().message));
              }
              read.emplace(name.str(), *std::move(content));
            }
            into = std::move(read);
            return {};
          }};
}

namespace {

// Of a default; what reads them for each request allows twice as much.
constexpr int kDeepestDefault = 16;

int levels_of(const toml::node& node) {
  int below = 0;
  if (const toml::array* elements = node.as_array()) {
    for (const toml::node& element : *elements) below = std::max(below, levels_of(element));
  } else if (const toml::table* entries = node.as_table()) {
    for (const auto& [name, entry] : *entries) below = std::max(below, levels_of(entry));
  }
  return below + 1;
}

// Null for what JSON does not have: dates, and numbers that are not finite.
boost::json::value to_json(const toml::node& node) {
  if (const auto* text = node.as_string()) return boost::json::value(text->get());
  if (const auto* number = node.as_integer()) return boost::json::value(number->get());
  if (const auto* flag = node.as_boolean()) return boost::json::value(flag->get());
  if (const auto* number = node.as_floating_point()) {
    return std::isfinite(number->get()) ? boost::json::value(number->get()) : nullptr;
  }
  if (const toml::array* elements = node.as_array()) {
    boost::json::array array;
    for (const toml::node& element : *elements) {
      array.push_back(to_json(element));
      if (array.back().is_null()) return nullptr;
    }
    return array;
  }
  if (const toml::table* entries = node.as_table()) {
    boost::json::object object;
    for (const auto& [name, entry] : *entries) {
      object[name.str()] = to_json(entry);
      if (object[name.str()].is_null()) return nullptr;
    }
    return object;
  }
  return nullptr;
}

}  // namespace

ValueReader json_map(std::map<std::string, std::string>& into, TextCheck check_name) {
  return {"table of values",
          [&into, check_name = std::move(check_name)](const toml::node& node) -> Result<void> {
            const toml::table* values = node.as_table();
            if (values == nullptr) return wrong_type("a table of values", node);
            std::map<std::string, std::string> read;
            for (const auto& [name, value] : *values) {
              if (std::string problem = check_name(name.str()); !problem.empty()) {
                return bad(std::move(problem));
              }
              if (levels_of(value) > kDeepestDefault) {
                return bad(
                    fmt::format("{} is nested deeper than {} levels", name.str(), kDeepestDefault));
              }
              const boost::json::value content = to_json(value);
              if (content.is_null()) {
                return bad(
                    fmt::format("{} has a date or a number that is not finite: JSON has "
                                "neither",
                                name.str()));
              }
              read.emplace(name.str(), boost::json::serialize(content));
            }
            into = std::move(read);
            return {};
          }};
}

ValueReader choice(std::vector<std::string_view> names, std::function<void(std::size_t)> store) {
  std::string type = fmt::format("\"{}\"", fmt::join(names, "\", \""));
  if (const std::size_t last = type.rfind(", \""); last != std::string::npos) {
    type.replace(last, 1, " or");
  }
  return {type, [names, type, store = std::move(store)](const toml::node& node) -> Result<void> {
            TRY(std::string value, read_text(node, any_text()));
            const auto found = std::find(names.begin(), names.end(), value);
            if (found == names.end()) {
              const std::string nearest = nearest_name(value, names);
              return bad(nearest.empty() ? fmt::format("\"{}\" is not {}", value, type)
                                         : fmt::format("\"{}\" is not {}: did you mean \"{}\"?",
                                                       value, type, nearest));
            }
            store(static_cast<std::size_t>(found - names.begin()));
            return {};
          }};
}

ValueReader integer_range(std::uint32_t& first, std::uint32_t& last, std::uint32_t min,
                          std::uint32_t max) {
  return {
      fmt::format("[first, last], integers {} to {}", min, max),
      [&first, &last, min, max](const toml::node& node) -> Result<void> {
        const toml::array* pair = node.as_array();
        if (pair == nullptr || pair->size() != 2 ||
            !pair->is_homogeneous(toml::node_type::integer)) {
          return bad("must be two integers, [first, last]");
        }
        const std::int64_t low = pair->get(0)->as_integer()->get();
        const std::int64_t high = pair->get(1)->as_integer()->get();
        if (low < min || high > max || low > high) {
          return bad(fmt::format("[{}, {}] is not a range within {} to {}", low, high, min, max));
        }
        first = static_cast<std::uint32_t>(low);
        last = static_cast<std::uint32_t>(high);
        return {};
      }};
}

}  // namespace omni
