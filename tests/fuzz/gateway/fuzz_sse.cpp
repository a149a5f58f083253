// Events pass unchanged however they are cut; the token tap does not care either.
#include <cstdlib>

#include "gateway/sse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace omni::gateway;
  if (size < 1) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t step = 1 + data[0] % 32;
  EventGate plain(false);
  EventGate hiding(true);
  UsageTap tap;
  std::string out;
  for (std::size_t at = 0; at < stream.size(); at += step) {
    const std::string_view piece = stream.substr(at, step);
    out += plain.feed(piece);
    hiding.feed(piece);
    tap.feed(piece);
  }
  out += plain.rest();
  hiding.rest();
  if (out != stream) std::abort();
  UsageTap whole;
  whole.feed(stream);
  if (whole.usage().has_value() != tap.usage().has_value()) std::abort();
  return 0;
}
