// The tasks a model can have: they decide endpoints, request and response shapes
// (docs/contracts/tasks.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace omni {

enum class Task : std::uint8_t {
  chat,  // chat models also answer completions
  completion,
  embeddings,
  speech_to_text,
  text_to_speech,
  other,  // any JSON object or raw bytes, by /ai/run alone
};

struct TaskName {
  Task task;
  std::string_view name;
};
inline constexpr std::array<TaskName, 6> kTaskNames{{{Task::chat, "chat"},
                                                     {Task::completion, "completion"},
                                                     {Task::embeddings, "embeddings"},
                                                     {Task::speech_to_text, "speech-to-text"},
                                                     {Task::text_to_speech, "text-to-speech"},
                                                     {Task::other, "other"}}};

constexpr std::string_view to_string(Task task) {
  return kTaskNames[static_cast<std::size_t>(task)].name;
}
constexpr std::optional<Task> parse_task(std::string_view name) {
  for (const TaskName& row : kTaskNames) {
    if (row.name == name) return row.task;
  }
  return std::nullopt;
}

}  // namespace omni
