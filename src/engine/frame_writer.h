// Gathers frames and writes them to a Unix socket: as many as possible in one sendmsg, each
// descriptor with the first byte of its frame. Payloads are not copied.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "engine/model_stream.h"

namespace omni::engine {

class FrameWriter {
 public:
  enum class Outcome : std::uint8_t {
    done,      // all is written
    blocked,   // the socket is full
    shortage,  // of descriptors under way or of memory: to be tried again a little later
    broken,    // the peer reads no more
  };

  // No further frame should be pushed for now. The bounds make a batch efficient, and little enough
  // that a small request does not wait long behind a large one.
  bool full() const { return frames_.size() >= kFrames || bytes_ >= kBytes; }
  // `stream` keeps the payload's memory; it is told when its last frame is written.
  void push(const OutgoingFrame& frame, std::shared_ptr<ModelStream> stream);
  // A frame of the connection itself, as encode_frame() makes it. The caller bounds their number.
  void push(std::string frame);
  // How many frames of the connection itself wait.
  std::size_t own_frames() const { return own_frames_; }

  Outcome write(int socket);

 private:
  static constexpr std::size_t kFrames = 32;
  static constexpr std::size_t kBytes = 256 * 1024;

  struct Pending {
    OutgoingFrame frame;
    std::shared_ptr<ModelStream> stream;  // or null, and then
    std::string own;                      // the whole frame
    std::size_t size() const;
  };

  void on_written(std::size_t count);

  std::deque<Pending> frames_;
  std::size_t bytes_ = 0;
  std::size_t offset_ = 0;  // bytes of the first frame that are written
  std::size_t own_frames_ = 0;
};

}  // namespace omni::engine
