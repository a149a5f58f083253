// What a hostile runtime can send on a request: frames cut out of arbitrary bytes, into the state
// machine of one stream, with a consumer that takes, waits and leaves as the input says.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/model_stream.h"

namespace {

using omni::engine::ModelStream;
namespace protocol = omni::protocol;

void require(bool condition) {
  if (!condition) std::abort();
}

ModelStream make_stream() {
  omni::engine::ModelRequest request;
  request.body = std::string(600'000, 'x');
  std::string head = ModelStream::encode_head(request, std::chrono::seconds(1));
  return ModelStream(1, std::move(request), std::move(head));
}

void send_all(ModelStream& stream) {
  while (stream.has_frame()) {
    const auto frame = stream.next_frame();
    require(frame.payload.size() <= protocol::kMaxPayload);
    if (frame.last) stream.release_request();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ModelStream stream = make_stream();
  send_all(stream);
  protocol::FrameReader reader;
  std::size_t held = 0;  // bytes of items that nobody took
  bool waited = false;   // since then an item may be larger than the window
  while (size > 1) {
    // One byte says how much comes with the next read and what the consumer does meanwhile.
    const std::uint8_t step = *data++;
    --size;
    const std::size_t count = std::min<std::size_t>({size, step & 0x3fu, reader.space().size()});
    if (count > 0) std::memcpy(reader.space().data(), data, count);
    reader.commit(count);
    data += count;
    size -= count;
    while (const auto frame = reader.next()) {
      require(frame->payload.size() <= protocol::kMaxPayload);
      if (stream.ended()) return 0;  // the channel looks no further
      if (!stream.on_frame(*frame).ok()) return 0;
      if (frame->header.type == protocol::FrameType::data) held += frame->payload.size();
      require(held <= protocol::kInitialCredit || waited || stream.cancelled());
    }
    if (reader.broken()) return 0;
    if (step & 0x40) {
      stream.set_hungry(!stream.has_item());
      waited = true;
    }
    if (step & 0x80 && stream.has_item()) {
      held -= std::min(held, stream.take_item().data.size());
      stream.set_hungry(false);
    }
    if (step == 0xff) stream.cancel({omni::ErrorCode::cancelled, "left"});
    if (step & 0x20) send_all(stream);
    if (stream.ended() && !stream.failure()) require(stream.answered() || stream.cancelled());
  }
  return 0;
}
