// The one way out to a client: every answer, stream and error of the public API passes here, so
// that each carries the request id, and a failure is told in the way that is still open: as an
// error object, as an event of a stream that has begun, or by cutting the connection.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/server.h"

namespace omni::gateway {

namespace asio = boost::asio;

class Answer {
 public:
  // `origin`: an allowed cross-origin caller, or empty.
  Answer(http::Exchange& exchange, std::string request_id, std::string origin);

  const std::string& request_id() const { return request_id_; }

  asio::awaitable<Result<void>> respond(int status, std::string content_type,
                                        std::string_view body);
  asio::awaitable<Result<void>> respond(http::ResponseHead head, std::string_view body);
  asio::awaitable<Result<void>> start(http::ResponseHead head, bool flush = false);
  asio::awaitable<Result<void>> write(std::string_view data);
  asio::awaitable<Result<void>> finish();
  asio::awaitable<Result<http::Exchange::Upgraded>> upgrade(http::ResponseHead head);

  // The head of an SSE stream, at once. Nothing when it is out already: a request that waited long
  // for its model has begun its stream with comments.
  asio::awaitable<Result<void>> start_events();
  asio::awaitable<Result<void>> start_events(http::ResponseHead head);
  bool events_started() const { return events_; }
  // The stream passed on less than whole events: an error can no longer be told as one.
  void events_torn() { torn_ = true; }

  // What an error answer says beside the error, if it comes to one.
  void retry_after(std::int64_t seconds) { retry_after_seconds_ = seconds; }
  void blame(std::string param) { param_ = std::move(param); }
  void allow(std::string_view methods) { allow_ = methods; }

  // Ends the answer.
  asio::awaitable<void> fail(const Error& error);
  // The same for an error that comes with the engine's own status and body.
  asio::awaitable<Result<void>> fail(int status, std::string body);

  int status() const { return status_; }  // 0: nothing was answered

 private:
  void add_common_headers(http::ResponseHead& head);
  http::ResponseHead error_head(int status) const;
  asio::awaitable<Result<void>> end_events(std::string_view error_body);

  http::Exchange& exchange_;
  std::string request_id_;
  std::string origin_;
  std::string param_;
  std::string allow_;
  std::int64_t retry_after_seconds_ = 0;
  int status_ = 0;
  bool events_ = false;
  bool torn_ = false;
  bool ended_ = false;
};

}  // namespace omni::gateway
