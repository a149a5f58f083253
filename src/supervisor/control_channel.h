// The supervisor's control connection to a Python runtime: HELLO, READY, DRAIN. Shared by the
// Instance and by its own coroutine run(), which ends with the connection or by close().
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <string>

#include "base/notifier.h"
#include "base/result.h"
#include "protocol/model_protocol.h"

namespace omni {

class ControlChannel {
 public:
  ControlChannel(boost::asio::io_context& loop, std::string path, Notifier& events)
      : path_(std::move(path)), socket_(loop), events_(events) {}

  // Connects and reads until the runtime closes. The shim listens for the runtime, so a connection
  // is had at once and waits there until the runtime accepts it.
  boost::asio::awaitable<void> run();
  // Finish what runs and exit. False when there is no connection that could carry it.
  bool drain();
  void close();

  bool ready() const { return ready_; }
  // Why the runtime can never become ready on this connection.
  const std::string& failure() const { return failure_; }

 private:
  boost::asio::awaitable<bool> send(protocol::FrameType type, std::string payload);
  boost::asio::awaitable<bool> read_frame();
  bool take(protocol::FrameType type);

  std::string path_;
  boost::asio::local::stream_protocol::socket socket_;
  Notifier& events_;
  std::string payload_;
  bool greeted_ = false;
  bool ready_ = false;
  std::string failure_;
};

}  // namespace omni
