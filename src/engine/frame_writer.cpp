#include "engine/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace omni::engine {

std::size_t FrameWriter::Pending::size() const {
  return stream ? frame.head_size + frame.payload.size() : own.size();
}

void FrameWriter::push(const OutgoingFrame& frame, std::shared_ptr<ModelStream> stream) {
  frames_.push_back({.frame = frame, .stream = std::move(stream)});
  bytes_ += frames_.back().size();
}

void FrameWriter::push(std::string frame) {
  frames_.push_back({.own = std::move(frame)});
  bytes_ += frames_.back().size();
  ++own_frames_;
}

FrameWriter::Outcome FrameWriter::write(int socket) {
  while (!frames_.empty()) {
    std::array<iovec, 2 * kFrames> vectors;
    std::size_t count = 0;
    std::size_t skip = offset_;
    const auto add = [&](const void* data, std::size_t size) {
      const std::size_t skipped = std::min(skip, size);
      skip -= skipped;
      if (size == skipped) return;
      const char* begin = static_cast<const char*>(data) + skipped;
      vectors[count++] = {.iov_base = const_cast<char*>(begin), .iov_len = size - skipped};
    };
    for (std::size_t i = 0; i < frames_.size() && count + 2 <= vectors.size(); ++i) {
      const Pending& pending = frames_[i];
      if (i > 0 && pending.frame.fd >= 0) break;  // it begins the next sendmsg
      if (!pending.stream) {
        add(pending.own.data(), pending.own.size());
        continue;
      }
      add(pending.frame.head.data(), pending.frame.head_size);
      add(pending.frame.payload.data(), pending.frame.payload.size());
    }

    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    const int fd = frames_.front().frame.fd;
    if (fd >= 0 && offset_ == 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    }

    const ssize_t written = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written >= 0) {
      on_written(static_cast<std::size_t>(written));
      continue;
    }
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
        return Outcome::blocked;
      case ETOOMANYREFS:
      case ENOBUFS:
      case ENOMEM:
        return Outcome::shortage;
      default:
        return Outcome::broken;
    }
  }
  return Outcome::done;
}

void FrameWriter::on_written(std::size_t count) {
  offset_ += count;
  while (!frames_.empty() && offset_ >= frames_.front().size()) {
    const Pending& pending = frames_.front();
    offset_ -= pending.size();
    bytes_ -= pending.size();
    if (!pending.stream) --own_frames_;
    if (pending.frame.last) pending.stream->release_request();
    frames_.pop_front();
  }
}

}  // namespace omni::engine
