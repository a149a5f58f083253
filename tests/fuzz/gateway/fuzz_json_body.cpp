// Whatever the body: no crash, and an edit of an accepted body is accepted again with the new name.
#include <cstdlib>

#include "gateway/json_body.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace omni::gateway;
  static JsonScanner scanner;
  std::string body(reinterpret_cast<const char*>(data), size);
  const auto facts = scanner.scan(body);
  if (!facts.ok()) return 0;
  JsonEdit edit(*facts);
  edit.set("model", facts->model_value, quote("a \"name\""));
  edit.set("stream", facts->stream_value, "true");
  std::string edited = edit.apply(std::move(body));
  const auto again = scanner.scan(edited);
  if (!again.ok() || again->model != "a \"name\"" || !again->stream) std::abort();
  return 0;
}
