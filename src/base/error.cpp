#include "base/error.h"

#include <cerrno>
#include <system_error>

namespace omni {
namespace {

using enum ErrorCode;

constexpr ErrorInfo kTable[] = {
    {invalid_request, "invalid_request", 400, 65, "InvalidRequest", "invalid_request_error",
     Origin::client, false, "Correct what the message names and send the request again."},
    {invalid_json, "invalid_json", 400, 65, "InvalidRequest", "invalid_request_error",
     Origin::client, false, "Send a JSON object in UTF-8; the message says where it breaks."},
    {model_not_found, "model_not_found", 404, 66, "ModelNotFound", "invalid_request_error",
     Origin::client, false, "Use a name that `omni models` lists."},
    {not_found, "not_found", 404, 66, "NotFound", "invalid_request_error", Origin::client, false,
     "Check the path against docs/api.md."},
    {method_not_allowed, "method_not_allowed", 405, 65, "InvalidRequest", "invalid_request_error",
     Origin::client, false, "Use the method that the Allow header names."},
    {forbidden_origin, "forbidden_origin", 403, 77, "PermissionDenied", "permission_error",
     Origin::client, false, "Call from an allowed origin, or add it to cors_origins in omni.toml."},
    {invalid_api_key, "invalid_api_key", 401, 77, "InvalidApiKey", "authentication_error",
     Origin::client, false,
     "Send a key of omni.toml as `Authorization: Bearer KEY` or `x-api-key`."},
    {task_mismatch, "task_mismatch", 400, 65, "InvalidRequest", "invalid_request_error",
     Origin::client, false, "Call the endpoint of the model's task; `omni models` shows it."},
    {body_too_large, "body_too_large", 413, 65, "InvalidRequest", "invalid_request_error",
     Origin::client, false, "Send less, or raise the limit that the message names."},
    {head_too_large, "head_too_large", 431, 65, "InvalidRequest", "invalid_request_error",
     Origin::client, false, "Send fewer or shorter headers."},
    {unsupported_media_type, "unsupported_media_type", 415, 65, "InvalidRequest",
     "invalid_request_error", Origin::client, false,
     "Send the content type that the endpoint takes."},
    {length_required, "length_required", 411, 65, "InvalidRequest", "invalid_request_error",
     Origin::client, false, "Send Content-Length or chunked encoding."},
    {request_timeout, "request_timeout", 408, 75, "RequestTimeout", "invalid_request_error",
     Origin::client, true, "Send the whole request within the time the message names."},
    {usage, "usage", 400, 64, "InvalidRequest", "invalid_request_error", Origin::client, false,
     "See `omni COMMAND --help`."},
    {invalid_config, "invalid_config", 500, 78, "InvalidConfig", "server_error", Origin::omni,
     false, "Correct the file, line and key that the message names; try `omni check`."},
    {queue_full, "queue_full", 503, 75, "Overloaded", "server_error", Origin::omni, true,
     "Retry after the seconds in Retry-After, or raise limits.queue_per_model."},
    {queue_timeout, "queue_timeout", 503, 75, "Overloaded", "server_error", Origin::omni, true,
     "Retry after the seconds in Retry-After, or raise limits.queue_timeout."},
    {overloaded, "overloaded", 503, 75, "Overloaded", "server_error", Origin::omni, true,
     "Retry after the seconds in Retry-After, or raise the limit the message names."},
    {model_too_large, "model_too_large", 503, 75, "OutOfMemory", "server_error", Origin::omni,
     false, "Raise the device's memory in omni.toml or use a smaller model."},
    {out_of_memory, "out_of_memory", 503, 75, "OutOfMemory", "server_error", Origin::omni, true,
     "Unpin or stop a model, or raise the device's memory in omni.toml."},
    {model_stopped, "model_stopped", 503, 75, "Unavailable", "server_error", Origin::omni, true,
     "The model was stopped by an operator while the request waited; send it again."},
    {shutting_down, "shutting_down", 503, 75, "Unavailable", "server_error", Origin::omni, true,
     "Send the request again when the daemon is back."},
    {provision_failed, "provision_failed", 503, 75, "LoadFailed", "server_error", Origin::engine,
     true, "Correct the requirements or weights that the message names."},
    {load_failed, "load_failed", 503, 75, "LoadFailed", "server_error", Origin::engine, true,
     "Read the model's last log lines in the message or `omni logs MODEL`."},
    {load_stalled, "load_stalled", 503, 75, "LoadFailed", "server_error", Origin::engine, true,
     "The model made no progress while loading; see `omni logs MODEL`, or raise load_stall."},
    {instance_crashed, "instance_crashed", 502, 75, "InstanceCrashed", "server_error",
     Origin::engine, true, "See `omni logs MODEL`; the request may be sent again."},
    {engine_protocol, "engine_protocol", 502, 76, "EngineError", "server_error", Origin::engine,
     false, "The engine answered what is not HTTP or not the model protocol; see its log."},
    {engine_timeout, "engine_timeout", 504, 75, "RequestTimeout", "server_error", Origin::engine,
     true, "Ask for less, or raise limits.request_timeout."},
    {handler_failed, "handler_failed", 500, 70, "HandlerFailed", "server_error", Origin::engine,
     false, "The handler raised an error; `omni logs MODEL` has the traceback."},
    {daemon_unreachable, "daemon_unreachable", 503, 69, "Unavailable", "server_error", Origin::omni,
     true, "Start the daemon with `omni serve`, or name its socket with --socket."},
    {already_running, "already_running", 503, 69, "Unavailable", "server_error", Origin::omni,
     false, "Stop the daemon that holds the root or port, or use another."},
    {cancelled, "cancelled", 499, 130, "Cancelled", "server_error", Origin::client, true,
     "The client closed the connection before the answer."},
    {permission_denied, "permission_denied", 403, 77, "PermissionDenied", "permission_error",
     Origin::omni, false, "Give the user the right that the message names."},
    {disk_full, "disk_full", 507, 74, "DiskFull", "server_error", Origin::omni, true,
     "Free space on the file system that the message names."},
    {io_error, "io_error", 500, 74, "IoError", "server_error", Origin::omni, true,
     "See the message for the file and the system's reason."},
    {internal, "internal", 500, 70, "InternalError", "server_error", Origin::omni, true,
     "Report it with the request id and the daemon's log."},
};

constexpr bool in_order() {
  std::size_t index = 0;
  for (const ErrorInfo& row : kTable) {
    if (static_cast<std::size_t>(row.code) != index++) return false;
  }
  return index == static_cast<std::size_t>(internal) + 1;
}
static_assert(in_order(), "error_info() indexes the table by code");

}  // namespace

std::span<const ErrorInfo> error_table() { return kTable; }

const ErrorInfo& error_info(ErrorCode code) { return kTable[static_cast<std::size_t>(code)]; }

const ErrorInfo* find_error(std::string_view name) {
  for (const ErrorInfo& row : kTable) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::client:
      return "client";
    case Origin::omni:
      return "omni";
    case Origin::engine:
      return "engine";
  }
  return "omni";
}

Error errno_error(std::string_view what) { return errno_error(what, errno); }

Error errno_error(std::string_view what, int error_number) {
  ErrorCode code = io_error;
  if (error_number == ENOSPC || error_number == EDQUOT) code = disk_full;
  if (error_number == EACCES || error_number == EPERM) code = permission_denied;
  return {code, std::string(what) + ": " + std::generic_category().message(error_number)};
}

}  // namespace omni
