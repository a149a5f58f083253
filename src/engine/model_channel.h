// The channel to a Python instance: the omni model protocol over its Unix socket
// (docs/contracts/model-protocol.md). One ModelChannel per I/O thread and instance, made on first
// use; it multiplexes that thread's requests.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/task.h"

namespace omni::engine {

namespace asio = boost::asio;

// What a handler gets: docs/contracts/tasks.md.
struct FilePart {
  std::string name;  // form field: "file"
  std::string filename;
  std::string content_type;
  std::uint64_t size = 0;
  Fd content;  // seekable, at offset 0; the handler gets its own descriptor
};
struct ModelRequest {
  std::string id;  // request id, for the handler's log
  Task task = Task::other;
  boost::json::object parameters;  // the task's canonical form, or the JSON object of /ai/run
  bool stream = false;             // the client asked for a stream
  std::vector<FilePart> files;
  // Raw body of /ai/run with a binary content type; `raw` is set when there is one.
  bool raw = false;
  std::string content_type;
  std::string body;  // raw bytes, when they are held; else files holds one part named ""
                     // Parameters and body are at most kMaxRequest, 64 MiB, each.
};

// What a handler gives. Item frames of an iterator come one by one; a plain answer is one item.
enum class ItemKind : std::uint8_t { json, text, bytes };
struct Item {
  ItemKind kind = ItemKind::json;
  // At most kMaxItem, 64 MiB. Text and JSON are checked to be UTF-8, JSON also to be one line,
  // without control characters; whether it is well-formed is not.
  std::string data;
};
struct ResponseStart {
  int status = 200;
  std::string content_type;                                  // of bytes; empty: the task's default
  bool streaming = false;                                    // the handler gave an iterator
  std::vector<std::pair<std::string, std::string>> headers;  // safe to write into a head
};

// One request. Destroying it before its end sends CANCEL.
class ModelCall {
 public:
  virtual ~ModelCall() = default;

  // Whether a byte of the answer has come: then the request cannot be replayed. An error that the
  // runtime answered instead of a response is not one.
  virtual bool answered() const = 0;
  // Both are for one waiter at a time.
  virtual asio::awaitable<Result<ResponseStart>> start() = 0;
  // Next item, or nothing at the end. An exception of the handler is handler_failed with its
  // message; a broken connection is instance_crashed.
  virtual asio::awaitable<Result<std::optional<Item>>> next() = 0;
  // Usage and the like, after the end: {"usage": {...}}, or empty.
  virtual const boost::json::object& trailer() const = 0;
  // The field that an invalid_request is about, for OpenAI's "param"; or empty.
  virtual std::string_view error_param() const = 0;
  virtual void cancel() = 0;  // pending operations end with `cancelled`; CANCEL goes to the runtime
};

class ModelChannel {
 public:
  // Connects, exchanges HELLO and waits for the runtime's READY.
  static asio::awaitable<Result<std::shared_ptr<ModelChannel>>> connect(asio::io_context& loop,
                                                                        Endpoint endpoint,
                                                                        Duration timeout);
  virtual ~ModelChannel() = default;
  // The request is the channel's from here on; body and files are sent under the runtime's
  // credit. `timeout`: nothing of the answer for so long while start() or next() waits → CANCEL and
  // engine_timeout.
  virtual std::unique_ptr<ModelCall> call(ModelRequest request, Duration timeout) = 0;
  // False once the connection is broken or closed: a new channel is needed.
  virtual bool alive() const = 0;
  // How long the oldest CANCEL has been without its END; nothing when none is. A runtime that is
  // stuck in a call shows here: after some seconds the instance is better restarted.
  virtual std::optional<Duration> oldest_cancel(TimePoint now) const = 0;
  // Calls that run fail with instance_crashed. The last owner's end closes as well; a call is one.
  virtual void close() = 0;
};

}  // namespace omni::engine
