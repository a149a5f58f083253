// What the scheduler has learned of models, kept over restarts in <state>/learned.json. Losing the
// file loses nothing but the experience: sizes are measured and times learned again.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "scheduler/types.h"

namespace omni::node {

class LearnedStore {
 public:
  // A file that is not there is empty; one that cannot be read is too, and the log says so.
  explicit LearnedStore(std::filesystem::path file);

  // Of the model's version before too: code that changed asks as often and loads about as long. Its
  // size is that of another version, which counts only when none is declared.
  std::optional<Learned> of(const std::string& model, const std::string& version,
                            bool size_is_declared) const;
  void set(const std::string& model, const std::string& version, const Learned& learned);

  // The file's content, when it is not what was written last: told by saved().
  std::optional<std::string> unsaved() const;
  void saved(std::string text) { saved_ = std::move(text); }
  const std::filesystem::path& file() const { return file_; }

 private:
  struct Entry {
    std::string version;
    Learned learned;
  };

  std::filesystem::path file_;
  std::map<std::string, Entry> entries_;
  std::string saved_;
};

}  // namespace omni::node
