#include "supervisor/control_channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>

namespace omni {
namespace {

using protocol::FrameHeader;
using protocol::FrameType;

std::string encode_frame(FrameType type, std::string_view payload) {
  FrameHeader header;
  header.type = type;
  header.length = static_cast<std::uint32_t>(payload.size());
  const auto bytes = protocol::encode(header);
  std::string frame(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return frame.append(payload);
}

// Version n accepts n - 1: a runtime may have been started by an older daemon.
bool speaks_our_version(std::string_view hello) {
  boost::system::error_code status;
  const boost::json::value value = boost::json::parse(hello, status);
  if (status || !value.is_object()) return false;
  const boost::json::value* version = value.as_object().if_contains("version");
  if (!version || !version->is_int64()) return false;
  const std::int64_t theirs = version->as_int64();
  return theirs == protocol::kModelProtocolVersion || theirs + 1 == protocol::kModelProtocolVersion;
}

}  // namespace

boost::asio::awaitable<void> ControlChannel::run() {
  boost::system::error_code status;
  auto token = boost::asio::redirect_error(boost::asio::use_awaitable, status);
  const boost::asio::local::stream_protocol::endpoint endpoint(path_);
  co_await socket_.async_connect(endpoint, token);
  if (!status) {
    const std::string hello =
        fmt::format(R"({{"version":{},"role":"control"}})", protocol::kModelProtocolVersion);
    bool open = co_await send(FrameType::hello, hello);
    while (open) open = co_await read_frame();
  } else {
    failure_ = "cannot connect to " + path_ + ": " + status.message();
  }
  close();
  events_.notify();
}

boost::asio::awaitable<bool> ControlChannel::send(FrameType type, std::string payload) {
  boost::system::error_code status;
  auto token = boost::asio::redirect_error(boost::asio::use_awaitable, status);
  const std::string frame = encode_frame(type, payload);
  const auto buffer = boost::asio::buffer(frame);
  co_await boost::asio::async_write(socket_, buffer, token);
  co_return !status;
}

boost::asio::awaitable<bool> ControlChannel::read_frame() {
  boost::system::error_code status;
  auto token = boost::asio::redirect_error(boost::asio::use_awaitable, status);
  std::array<std::byte, protocol::kFrameHeaderSize> head;
  const auto head_buffer = boost::asio::buffer(head);
  co_await boost::asio::async_read(socket_, head_buffer, token);
  if (status) co_return false;
  const auto header = protocol::decode_header(head);
  if (!header) {
    failure_ = "it answers what is not the model protocol";
    co_return false;
  }
  payload_.resize(header->length);
  const auto payload_buffer = boost::asio::buffer(payload_);
  co_await boost::asio::async_read(socket_, payload_buffer, token);
  if (status) co_return false;
  if (header->type == FrameType::ping) {
    const bool sent = co_await send(FrameType::pong, payload_);
    co_return sent;
  }
  co_return take(header->type);
}

bool ControlChannel::take(FrameType type) {
  if (type == FrameType::hello) {
    greeted_ = speaks_our_version(payload_);
    if (!greeted_) failure_ = "its runtime speaks another version of the model protocol";
    return greeted_;
  }
  if (type == FrameType::ready && !greeted_) failure_ = "its runtime sent READY before HELLO";
  if (type == FrameType::ready && greeted_) ready_ = true;
  events_.notify();
  return failure_.empty();
}

bool ControlChannel::drain() {
  if (!ready_ || !socket_.is_open()) return false;
  const std::string frame = encode_frame(FrameType::drain, {});
  const ssize_t sent =
      ::send(socket_.native_handle(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(frame.size());
}

void ControlChannel::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace omni
