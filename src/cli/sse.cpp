#include "cli/sse.h"

namespace omni::cli {

std::vector<SseEvent> SseReader::feed(std::string_view bytes) {
  std::vector<SseEvent> events;
  for (const char c : bytes) {
    const bool second_of_pair = c == '\n' && after_return_;
    after_return_ = c == '\r';
    if (second_of_pair) continue;
    if (c == '\n' || c == '\r') {
      end_line(events);
    } else {
      line_ += c;
    }
  }
  return events;
}

void SseReader::end_line(std::vector<SseEvent>& events) {
  if (line_.empty()) {
    if (has_data_) events.push_back(std::move(event_));
    event_ = {};
    has_data_ = false;
    return;
  }
  std::string_view value = line_;
  const std::size_t colon = value.find(':');
  const std::string_view field = value.substr(0, colon);
  value = colon == value.npos ? std::string_view() : value.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  } else if (field == "id") {
    event_.id = value;
  }
  line_.clear();
}

}  // namespace omni::cli
