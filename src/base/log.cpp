#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <boost/json.hpp>

namespace omni {
namespace {

// The message as a JSON string: quotes and control characters in it cannot break the line.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string text = boost::json::serialize(
        boost::json::string_view(message.payload.data(), message.payload.size()));
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

}  // namespace

Result<void> configure_log(std::string_view level, LogFormat format) {
  const auto parsed = spdlog::level::from_str(std::string(level == "warn" ? "warning" : level));
  if (parsed == spdlog::level::off) {
    return Error{ErrorCode::usage, "log level \"" + std::string(level) +
                                       "\" is unknown: use trace, debug, info, warn or error"};
  }
  auto logger =
      std::make_shared<spdlog::logger>("omni", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  if (format == LogFormat::json) {
    formatter->add_flag<JsonMessage>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":%*})");
  } else {
    formatter->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
  }
  logger->set_formatter(std::move(formatter));
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace omni
