// The channel to a Python instance: the omni model protocol over its Unix socket
// (docs/contracts/model-protocol.md). One ModelChannel per I/O thread and instance, made on first
// use; it multiplexes that thread's requests.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>
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
};

// What a handler gives. Item frames of an iterator come one by one; a plain answer is one item.
enum class ItemKind : std::uint8_t { json, text, bytes };
struct Item {
  ItemKind kind = ItemKind::json;
  std::string data;  // JSON text, UTF-8 text or bytes
};
struct ResponseStart {
  int status = 200;
  std::string content_type;  // of bytes; empty: the task's default
  bool streaming = false;    // the handler gave an iterator
  std::vector<std::pair<std::string, std::string>> headers;
};

// One request. Destroying it before its end sends CANCEL.
class ModelCall {
 public:
  virtual ~ModelCall() = default;

  // Whether a byte of the answer has come: then the request cannot be replayed.
  virtual bool answered() const = 0;
  virtual asio::awaitable<Result<ResponseStart>> start() = 0;
  // Next item, or nothing at the end. An exception of the handler is handler_failed with its
  // message; a broken connection is instance_crashed.
  virtual asio::awaitable<Result<std::optional<Item>>> next() = 0;
  // Usage and the like, after the end: {"usage": {...}}, or empty.
  virtual const boost::json::object& trailer() const = 0;
  virtual void cancel() = 0;  // pending operations end with `cancelled`; CANCEL goes to the runtime
};

class ModelChannel {
 public:
  // Connects, exchanges HELLO and waits for the runtime's READY.
  static asio::awaitable<Result<std::shared_ptr<ModelChannel>>> connect(asio::io_context& loop,
                                                                        Endpoint endpoint,
                                                                        Duration timeout);
  virtual ~ModelChannel() = default;
  // The request is copied out before it returns; body and files are sent under the runtime's
  // credit. `timeout`: no answer for so long → CANCEL and engine_timeout.
  virtual std::unique_ptr<ModelCall> call(ModelRequest request, Duration timeout) = 0;
  virtual bool alive() const = 0;
  virtual void close() = 0;
};

}  // namespace omni::engine
