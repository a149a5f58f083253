// Reads server-sent events from pieces of a stream.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace omni::cli {

struct SseEvent {
  std::string id;
  std::string data;  // several data lines are joined by a line feed
};

class SseReader {
 public:
  // The events that these bytes complete. Comments and unknown fields are skipped.
  std::vector<SseEvent> feed(std::string_view bytes);

 private:
  void end_line(std::vector<SseEvent>& events);

  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool after_return_ = false;  // the line feed of a CR LF pair ends no second line
};

}  // namespace omni::cli
