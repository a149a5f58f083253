// The one error type of omni, and the one table that says what each error means everywhere: HTTP
// status, exit code, SDK exception, metric label. docs/errors.md is checked against this table by a
// test.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace omni {

enum class ErrorCode : std::uint8_t {
  // The caller is wrong.
  invalid_request,
  invalid_json,
  model_not_found,
  not_found,
  method_not_allowed,
  forbidden_origin,
  invalid_api_key,
  task_mismatch,
  body_too_large,
  head_too_large,
  unsupported_media_type,
  length_required,
  request_timeout,
  usage,
  invalid_config,
  // There is no room or no time now; the same request may work later.
  queue_full,
  queue_timeout,
  overloaded,
  model_too_large,
  out_of_memory,
  model_stopped,
  shutting_down,
  // The model is at fault.
  provision_failed,
  load_failed,
  load_stalled,
  instance_crashed,
  engine_protocol,
  engine_timeout,
  handler_failed,
  // The way to the daemon, or the daemon.
  daemon_unreachable,
  already_running,
  cancelled,
  permission_denied,
  disk_full,
  io_error,
  internal,
};

// Who failed: what an operator looks at first.
enum class Origin : std::uint8_t { client, omni, engine };

struct ErrorInfo {
  ErrorCode code;
  std::string_view name;           // "out_of_memory": code in error bodies and the metric label
  int http_status;                 // 503
  int exit_code;                   // 75, from sysexits.h
  std::string_view sdk_exception;  // "OutOfMemory"
  std::string_view openai_type;    // "server_error"
  Origin origin;
  bool retryable;           // the same request may succeed later
  std::string_view remedy;  // one line for docs/errors.md: what to do
};

// One row per code, in the order of the enumeration.
std::span<const ErrorInfo> error_table();
const ErrorInfo& error_info(ErrorCode code);
// The row whose name this is, or null.
const ErrorInfo* find_error(std::string_view name);
std::string_view to_string(Origin origin);

// A message names the thing and the way out.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;

  const ErrorInfo& info() const { return error_info(code); }
};

// "cannot open /x: No such file or directory", from errno at the call; ENOSPC and EACCES get their
// own codes.
Error errno_error(std::string_view what);
Error errno_error(std::string_view what, int error_number);

}  // namespace omni
