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
  embeddings,  // of a Python handler also answers rerank
  rerank,
  speech_to_text,
  text_to_speech,
  image_generation,
  image_to_image,
  audio_to_audio,  // by /ai/run alone
  other,           // any JSON object or raw bytes, by /ai/run alone
};

struct TaskName {
  Task task;
  std::string_view name;
};
inline constexpr std::array<TaskName, 10> kTaskNames{{{Task::chat, "chat"},
                                                      {Task::completion, "completion"},
                                                      {Task::embeddings, "embeddings"},
                                                      {Task::rerank, "rerank"},
                                                      {Task::speech_to_text, "speech-to-text"},
                                                      {Task::text_to_speech, "text-to-speech"},
                                                      {Task::image_generation, "image-generation"},
                                                      {Task::image_to_image, "image-to-image"},
                                                      {Task::audio_to_audio, "audio-to-audio"},
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

// The one file that requests of this task are about: the name of its form part, which a raw body of
// /ai/run gets as well; empty: none.
constexpr std::string_view file_part(Task task) {
  switch (task) {
    case Task::speech_to_text:
    case Task::audio_to_audio:
      return "file";
    case Task::image_to_image:
      return "image";
    default:
      return {};
  }
}

}  // namespace omni
