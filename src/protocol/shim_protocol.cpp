#include "protocol/shim_protocol.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

namespace omni::protocol {
namespace {

Error refused(std::string message) { return {ErrorCode::invalid_config, std::move(message)}; }

Result<void> append(std::string& out, std::string_view text, std::string_view what) {
  if (text.find('\0') != std::string_view::npos) {
    return refused(fmt::format("{} holds a zero byte", what));
  }
  out.append(text);
  out.push_back('\0');
  return {};
}

Result<void> check_count(std::size_t count, std::string_view what) {
  if (count <= kMaxStartStrings) return {};
  return refused(fmt::format("{} {}, the most is {}", count, what, kMaxStartStrings));
}

}  // namespace

Result<std::string> encode(const StartRequest& request) {
  if (request.argv.empty()) return refused("the command is empty");
  CHECK(check_count(request.argv.size(), "arguments"));
  CHECK(check_count(request.env.size(), "environment variables"));
  CHECK(check_count(request.reach.size(), "paths to reach"));

  StartHeader header;
  header.argc = static_cast<std::uint32_t>(request.argv.size());
  header.envc = static_cast<std::uint32_t>(request.env.size());
  header.reach_count = static_cast<std::uint32_t>(request.reach.size());
  header.has_uid = request.has_uid ? 1 : 0;
  header.uid = request.uid;
  header.python = request.python ? 1 : 0;

  std::string out(sizeof header, '\0');
  std::memcpy(out.data(), &header, sizeof header);
  CHECK(append(out, request.working_directory, "the working directory"));
  CHECK(append(out, request.run_dir, "the run folder"));
  CHECK(append(out, request.log_file, "the log file"));
  for (const std::string& argument : request.argv) CHECK(append(out, argument, "an argument"));
  for (const std::string& variable : request.env) CHECK(append(out, variable, "a variable"));
  for (const StartRequest::Reach& reach : request.reach) {
    CHECK(append(out, (reach.writable ? "w" : "r") + reach.path, "a path to reach"));
  }
  if (out.size() > kMaxStartBytes) {
    return refused(fmt::format("command and environment are {} bytes, the most is {}", out.size(),
                               kMaxStartBytes));
  }
  return out;
}

}  // namespace omni::protocol
