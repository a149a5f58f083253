// The two answers of the admin API that have no end of their own: a followed log and the events.
// Each belongs to one client and writes only as fast as that client reads.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <filesystem>

#include "admin/admin.h"

namespace omni::admin {

struct LogRequest {
  std::filesystem::path file;
  std::size_t lines = 0;  // the last so many
  bool follow = false;    // and what is written from now on, until the client leaves
};

asio::awaitable<void> stream_log(NodeControl& node, http::Exchange& exchange, LogRequest request);
// Server-sent events after the event with id `after`.
asio::awaitable<void> stream_events(NodeControl& node, http::Exchange& exchange,
                                    std::uint64_t after);

// Answers with the error object.
asio::awaitable<void> respond_error(http::Exchange& exchange, Error error);

}  // namespace omni::admin
