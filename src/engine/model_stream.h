// One request on a model channel, as a state machine without I/O: which frame goes out next, and
// what has come in. ModelChannel moves its frames; ModelCall hands its answer on.
//
// What comes in is written by the model's process, which may be broken or hostile: every violation
// is an engine_protocol error, and nothing that it sends is held beyond its credit.
#pragma once

#include <array>
#include <boost/json.hpp>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model_channel.h"
#include "protocol/model_protocol.h"

namespace omni::engine {

// A frame to write. The payload lies in the stream; the descriptor, if any, is the stream's too.
struct OutgoingFrame {
  std::array<std::byte, protocol::kFrameHeaderSize + sizeof(std::uint32_t)> head;
  std::size_t head_size = protocol::kFrameHeaderSize;  // with a CREDIT's four bytes
  std::string_view payload;
  int fd = -1;
  bool last = false;  // nothing of the request is needed any more once this is written
};

class ModelStream {
 public:
  // The request must be within kMaxRequest.
  ModelStream(std::uint64_t id, ModelRequest request, std::string head);
  // The JSON of the REQUEST frames.
  static std::string encode_head(const ModelRequest& request, Duration timeout);

  std::uint64_t id() const { return id_; }

  // What to send.
  bool has_frame() const;
  OutgoingFrame next_frame();
  void release_request();  // the last frame is written: body and descriptors go

  // What has come. An error ends the connection, since the peer does not keep to the protocol.
  Result<void> on_frame(const protocol::Frame& frame);
  // The connection broke or the time is up: the error follows the items that have come.
  void fail(Error error);
  // The caller wants no more. CANCEL goes out if the runtime knows of the request.
  void cancel(Error error);

  // The answer as far as it has come.
  bool answered() const { return response_.has_value(); }
  const std::optional<ResponseStart>& response() const { return response_; }
  bool has_item() const { return !items_.empty(); }
  Item take_item();
  // The consumer waits for an item: what comes of one may exceed the window, up to kMaxItem.
  void set_hungry(bool hungry);
  bool ended() const { return ended_; }  // END has come, or nothing was ever sent
  const std::optional<Error>& failure() const { return failure_; }
  const boost::json::object& trailer() const { return trailer_; }
  const std::string& error_param() const { return error_param_; }
  bool cancelled() const { return cancelled_; }
  // CANCEL is sent or due, and END has not come.
  bool cancelling() const { return cancelled_ && !ended_; }

 private:
  struct Received {
    Item item;
    std::uint32_t cost;  // of its frames, not yet given back as credit
  };

  OutgoingFrame make_frame(protocol::FrameType type, std::string_view payload,
                           std::uint8_t flags = 0) const;
  bool credit_due() const { return consumed_ >= protocol::kCreditStep; }
  Result<void> on_response(std::string_view payload);
  Result<void> on_data(const protocol::FrameHeader& header, std::string_view payload);
  Result<void> on_trailer(std::string_view payload);
  Result<void> on_end(const protocol::FrameHeader& header, std::string_view payload);
  Result<void> on_credit(std::string_view payload);

  const std::uint64_t id_;

  // The request, and how much of it is sent.
  std::string head_;
  std::vector<Fd> files_;
  std::string body_;
  std::size_t head_sent_ = 0;
  std::size_t files_sent_ = 0;
  std::size_t body_sent_ = 0;
  std::uint64_t credit_ = protocol::kInitialCredit;
  bool head_complete_ = false;
  bool request_complete_ = false;  // END is sent
  bool cancelled_ = false;
  bool cancel_sent_ = false;

  // The answer.
  std::optional<ResponseStart> response_;
  std::deque<Received> items_;
  std::optional<Received> partial_;  // an item whose last frame has not come
  std::size_t item_count_ = 0;
  std::uint32_t window_ = protocol::kInitialCredit;  // what the runtime may still send
  std::uint32_t consumed_ = 0;                       // to be given back
  bool hungry_ = false;
  bool ended_ = false;
  std::optional<Error> failure_;
  boost::json::object trailer_;
  std::string error_param_;
};

}  // namespace omni::engine
