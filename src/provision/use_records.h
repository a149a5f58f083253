// What each model uses of the state folder, for `omni gc`: <state>/versions/MODEL.json. A record
// names what an earlier daemon prepared until this one has prepared the model itself; from then on,
// all that this one has.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace omni {

struct Used {
  std::set<std::string> versions;
  std::set<std::string> environments;
  std::set<std::string> weights;  // digests in the store, and names of parts

  void add(const Used& other);
};

std::filesystem::path records_folder(const std::filesystem::path& state);
std::filesystem::path record_file(const std::filesystem::path& state, const std::string& model);
// Held (shared) by a daemon from the model's first preparation on, as long as it lives: what it
// uses is in use, whatever the configuration says by now.
std::filesystem::path model_lock(const std::filesystem::path& state, const std::string& model);
// Held (alone) while garbage is chosen and removed, and (shared) while a finished preparation is
// noted.
std::filesystem::path garbage_lock(const std::filesystem::path& state);

Result<Used> read_record(const std::filesystem::path& file);

// Of one daemon. Thread-safe; all calls block.
class UseRecords {
 public:
  explicit UseRecords(std::filesystem::path state) : state_(std::move(state)) {}

  // Before it is built or fetched: a build that fails half way keeps what it has.
  Result<void> claim(const std::string& model, const Used& more);
  // The model is ready with this. Fails if something of it has been removed meanwhile, and it must
  // be prepared again.
  Result<bool> commit(const std::string& model, const Used& all,
                      const std::vector<std::filesystem::path>& must_exist);

 private:
  struct Entry {
    Used before;  // of an earlier daemon
    Used own;
  };
  Entry& entry(const std::string& model);
  Result<void> write(const std::string& model, const Entry& entry) const;

  std::filesystem::path state_;
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace omni
