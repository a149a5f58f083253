// Serving a request on a command engine: an HTTP server of somebody else's. Its answer passes
// through piece by piece, with its own status.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "gateway/body.h"
#include "gateway/request.h"
#include "gateway/serve.h"
#include "gateway/sse.h"
#include "http/client.h"

namespace omni::gateway {

// A body of known length that can be sent any number of times: text and files in a row.
class EngineBody {
 public:
  EngineBody() = default;
  explicit EngineBody(std::string text) { add(std::move(text)); }

  void add(std::string text);
  void add(std::shared_ptr<const SpoolFile> file);
  std::uint64_t size() const;

  using Segment = std::variant<std::string, std::shared_ptr<const SpoolFile>>;
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  std::vector<Segment> segments_;
};

struct EngineRequest {
  std::string method;
  std::string target;
  // The engine gets the client's end-to-end headers, but for:
  std::string content_type;     // empty: the client's
  bool answer_is_read = false;  // the client's Accept-Encoding is not passed on
  EngineBody body;
  // The body is the rest of the client's, sent on as it comes: once.
  bool stream_body = false;
  // Take the tokens from the answer; keep an event that carries usage alone from the client.
  bool count_tokens = false;
  bool hide_usage = false;
  // Hand the connection over to the client when the engine switches protocols.
  bool upgrade = false;
};

class HttpBackend : public Backend {
 public:
  explicit HttpBackend(EngineRequest engine_request) : wanted_(std::move(engine_request)) {}

  asio::awaitable<Attempt> attempt(Request& request, Lease& lease) override;
  bool replayable() const override { return !wanted_.stream_body || !client_body_read_; }

 private:
  std::string head_for(const Request& request, const Endpoint& endpoint) const;
  asio::awaitable<Result<void>> run(Request& request, http::Call& call, Lease& lease);
  asio::awaitable<Result<void>> send(Request& request, http::Call& call, const std::string& head);
  asio::awaitable<Result<void>> send_client_body(Request& request, http::Call& call,
                                                 const std::string& head);
  asio::awaitable<Result<void>> relay_answer(Request& request, http::Call& call,
                                             http::ResponseHead head);
  asio::awaitable<Result<void>> relay_events(Request& request, http::Call& call,
                                             http::ResponseHead head);
  asio::awaitable<Result<void>> relay_bytes(Request& request, http::Call& call,
                                            http::ResponseHead head);
  asio::awaitable<Result<void>> relay_error(Request& request, http::Call& call,
                                            http::ResponseHead head);
  asio::awaitable<Result<void>> relay_upgrade(Request& request, http::Call& call,
                                              http::ResponseHead head, Lease& lease);

  EngineRequest wanted_;
  UsageTap tap_;
  bool client_body_read_ = false;
};

}  // namespace omni::gateway
