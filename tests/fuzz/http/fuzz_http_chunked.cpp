// Any bytes as a chunked body: the result is the same whether they come at once or one by one, and
// nothing is read past the end.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/body_decoder.h"

namespace {

struct Decoded {
  std::string body;
  std::size_t used = 0;
  bool done = false;
  bool failed = false;
  bool operator==(const Decoded&) const = default;
};

Decoded decode(std::string_view input, std::size_t piece) {
  omni::http::BodyDecoder decoder;
  decoder.reset_chunked();
  Decoded out;
  std::size_t available = std::min(piece, input.size());
  while (!decoder.done()) {
    const auto step = decoder.next(input.substr(out.used, available - out.used));
    if (!step.ok()) {
      out.failed = true;
      out.used = 0;  // where in the piece it failed is not part of the result
      return out;
    }
    out.body += step->data;
    out.used += step->skipped + step->data.size();
    if (!step->data.empty() || out.used < available) continue;
    if (available == input.size()) break;
    available = std::min(available + piece, input.size());
  }
  out.done = decoder.done();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const Decoded whole = decode(input, size + 1);
  if (whole != decode(input, 1) || whole.body.size() > size || whole.used > size) std::abort();
  return 0;
}
