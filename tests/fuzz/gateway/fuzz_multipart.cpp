// A body gives the same parts, or is refused, however it is cut: whole, and in steps of the first
// byte's choice.
#include <cstdlib>

#include "gateway/multipart.h"

namespace {

using namespace omni;
using namespace omni::gateway;

class Transcript : public MultipartScanner::Sink {
 public:
  Result<void> begin(PartHead head) override {
    text += "[" + head.name + "|" + head.filename + "|" + head.content_type + "]";
    return {};
  }
  Result<void> data(std::string_view bytes) override {
    text += bytes;
    return {};
  }
  Result<void> end() override {
    text += "[end]";
    return {};
  }
  std::string text;
};

std::string scan(std::string_view body, std::size_t step, bool& accepted) {
  Transcript transcript;
  MultipartScanner scanner("B", transcript);
  accepted = true;
  for (std::size_t at = 0; at < body.size() && accepted; at += step) {
    accepted = scanner.feed(body.substr(at, step)).ok();
  }
  accepted = accepted && scanner.finish().ok();
  return transcript.text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  bool whole_accepted = false;
  bool cut_accepted = false;
  const std::string whole = scan(body, body.size(), whole_accepted);
  const std::string cut = scan(body, std::size_t{1} + data[0] % 32, cut_accepted);
  if (whole_accepted != cut_accepted) std::abort();
  if (whole_accepted && whole != cut) std::abort();
  return 0;
}
