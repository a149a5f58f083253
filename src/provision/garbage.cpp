#include "provision/garbage.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/fd.h"
#include "base/files.h"
#include "config/weight_source.h"
#include "provision/file_lock.h"
#include "provision/files.h"
#include "provision/remote.h"
#include "provision/store.h"
#include "provision/use_records.h"

namespace omni {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr Duration kLongestNote = 10s;  // that a daemon may take to note what it has prepared

// Blocks that removing this one name gives back.
std::int64_t own_blocks(const fs::path& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0) return 0;
  const bool shared = S_ISREG(info.st_mode) && info.st_nlink > 1;
  return shared ? 0 : info.st_blocks;
}

Bytes size_on_disk(const fs::path& path) {
  std::int64_t blocks = own_blocks(path);
  std::error_code status;
  if (fs::is_directory(fs::symlink_status(path, status))) {
    fs::recursive_directory_iterator entry(path, status);
    for (; !status && entry != fs::recursive_directory_iterator(); entry.increment(status)) {
      blocks += own_blocks(entry->path());
    }
  }
  return Bytes(blocks * 512);
}

// A folder's names, sorted; a missing one has none.
Result<std::vector<std::string>> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code status;
  fs::directory_iterator entry(folder, status);
  if (status == std::errc::no_such_file_or_directory) return names;
  for (; !status && entry != fs::directory_iterator(); entry.increment(status)) {
    names.push_back(entry->path().filename());
  }
  if (status) return errno_error("cannot read " + folder.string(), status.value());
  std::sort(names.begin(), names.end());
  return names;
}

// One run.
class Collector {
 public:
  explicit Collector(const GarbageOrder& order) : order_(order), state_(order.state) {}

  Result<Garbage> run();

 private:
  Result<void> read_records();
  Result<void> collect_environments();
  Result<void> collect_indexed(const fs::path& folder);
  Result<void> collect_parts();
  Result<void> collect_stored();
  Result<void> collect_caches();
  Result<bool> is_held(const std::string& model);
  Result<void> remove_group(const fs::path& base, const std::vector<fs::path>& paths);
  Result<void> remove(const fs::path& shown, const std::vector<fs::path>& paths);

  const GarbageOrder& order_;
  const fs::path& state_;
  std::map<std::string, Used> models_;  // in use
  Used used_;                           // by all of them
  Garbage garbage_;
};

// What the daemon itself names files by: anything else in its folders is not garbage.
bool is_own_name(std::string_view name) { return is_sha256(name) || name.starts_with("git-"); }

// What belongs together: HASH, HASH.lock, HASH.log and so on.
Result<std::map<std::string, std::vector<fs::path>>> groups_in(const fs::path& folder) {
  TRY(const std::vector<std::string> names, names_in(folder));
  std::map<std::string, std::vector<fs::path>> groups;
  for (const std::string& name : names) {
    const std::string base = name.substr(0, name.find('.'));
    if (is_own_name(base)) groups[base].push_back(folder / name);
  }
  return groups;
}

Result<void> Collector::remove(const fs::path& shown, const std::vector<fs::path>& paths) {
  Bytes size;
  for (const fs::path& path : paths) size += size_on_disk(path);
  if (!order_.dry_run) {
    for (const fs::path& path : paths) {
      ::unlink((path / ".complete").c_str());  // an environment that is half gone is none
      CHECK(remove_tree(path));
    }
  }
  garbage_.removed.push_back({shown.lexically_relative(state_), size});
  garbage_.freed += size;
  return {};
}

// Removes it unless its lock is held; the lock goes last, while it is held here.
Result<void> Collector::remove_group(const fs::path& base, const std::vector<fs::path>& paths) {
  const fs::path lock_path = base.string() + ".lock";
  std::error_code ignored;
  Fd lock;
  if (fs::exists(lock_path, ignored)) {
    TRY(lock, try_lock_file(lock_path));
    if (!lock) {
      garbage_.busy.push_back(base.lexically_relative(state_));
      return {};
    }
  }
  std::vector<fs::path> ordered = paths;
  std::partition(ordered.begin(), ordered.end(),
                 [&](const fs::path& path) { return path != lock_path; });
  return remove(base, ordered);
}

// A daemon that has prepared the model lives.
Result<bool> Collector::is_held(const std::string& model) {
  const fs::path file = model_lock(state_, model);
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return false;
  TRY(const Fd lock, try_lock_file(file));
  return !lock;
}

Result<void> Collector::read_records() {
  TRY(const std::vector<std::string> names, names_in(records_folder(state_)));
  for (const std::string& name : names) {
    if (!name.ends_with(".json") || name.starts_with('.')) continue;
    const std::string model = name.substr(0, name.size() - 5);
    bool in_use = order_.models.contains(model);
    if (!in_use) {
      TRY(in_use, is_held(model));
    }
    const fs::path file = record_file(state_, model);
    if (!in_use) {
      CHECK(remove_group(records_folder(state_) / model, {file, model_lock(state_, model)}));
      continue;
    }
    TRY(Used used, read_record(file));
    used_.add(used);
    models_[model] = std::move(used);
  }
  return {};
}

Result<void> Collector::collect_environments() {
  TRY(const auto groups, groups_in(state_ / "environments"));
  for (const auto& [hash, paths] : groups) {
    if (used_.environments.contains(hash)) continue;
    CHECK(remove_group(state_ / "environments" / hash, paths));
  }
  return {};
}

// Indexes of wheels and of the hub: used as long as the file that they lead to is.
Result<void> Collector::collect_indexed(const fs::path& folder) {
  TRY(const auto groups, groups_in(folder));
  for (const auto& [key, paths] : groups) {
    if (used_.weights.contains(read_digest_index(folder / key))) continue;
    CHECK(remove_group(folder / key, paths));
  }
  return {};
}

Result<void> Collector::collect_parts() {
  const fs::path folder = parts_folder(state_ / "weights");
  TRY(const auto groups, groups_in(folder));
  for (const auto& [identity, paths] : groups) {
    if (used_.weights.contains(identity) || order_.digests.contains(identity)) continue;
    CHECK(remove_group(folder / identity, paths));
  }
  return {};
}

Result<void> Collector::collect_stored() {
  const fs::path root = state_ / "weights/sha256";
  TRY(const std::vector<std::string> folders, names_in(root));
  for (const std::string& folder : folders) {
    TRY(const auto groups, groups_in(root / folder));
    for (const auto& [digest, paths] : groups) {
      if (used_.weights.contains(digest) || order_.digests.contains(digest)) continue;
      CHECK(remove(root / folder / digest, paths));
    }
  }
  return {};
}

Result<void> Collector::collect_caches() {
  TRY(const std::vector<std::string> models, names_in(state_ / "cache"));
  for (const std::string& model : models) {
    const fs::path folder = state_ / "cache" / model;
    const auto used = models_.find(model);
    if (used == models_.end()) {
      // Configured and without a record: nothing is known about it.
      if (!order_.models.contains(model)) CHECK(remove(folder, {folder}));
      continue;
    }
    TRY(const std::vector<std::string> versions, names_in(folder));
    for (const std::string& version : versions) {
      if (used->second.versions.contains(version)) continue;
      CHECK(remove(folder / version, {folder / version}));
    }
  }
  return {};
}

Result<Garbage> Collector::run() {
  CHECK(read_records());
  CHECK(collect_environments());
  CHECK(collect_indexed(state_ / "weights/pypi"));
  CHECK(collect_indexed(state_ / "weights/hub"));
  CHECK(collect_parts());
  CHECK(collect_stored());
  CHECK(collect_caches());
  return std::move(garbage_);
}

// Daemons note what they have prepared under this lock, and look afterwards whether it is all
// there still: what is garbage does not change while it is held.
Result<Fd> hold_still(const fs::path& state) {
  CHECK(make_directories(records_folder(state)));
  const fs::path file = garbage_lock(state);
  for (const TimePoint deadline = Clock::now() + kLongestNote; Clock::now() < deadline;) {
    TRY(Fd lock, try_lock_file(file));
    if (lock) return lock;
    std::this_thread::sleep_for(20ms);
  }
  return Error{
      ErrorCode::already_running,
      fmt::format("{} is held by another `omni gc`: wait until it has ended", file.string())};
}

bool uses_state(const ModelSpec& model) {
  const bool fetches = std::any_of(model.weights.begin(), model.weights.end(),
                                   [](const auto& w) { return !w.source.starts_with("file:"); });
  return fetches || !model.requirements.empty();
}

}  // namespace

GarbageOrder keep_models(fs::path state, const std::vector<ModelSpec>& models) {
  GarbageOrder order{.state = std::move(state)};
  for (const ModelSpec& model : models) {
    order.models.insert(model.name);
    for (const WeightSpec& weight : model.weights) order.digests.insert(weight.sha256);
  }
  order.digests.erase("");
  return order;
}

std::vector<std::string> unprepared(const fs::path& state, const std::vector<ModelSpec>& models) {
  std::vector<std::string> names;
  for (const ModelSpec& model : models) {
    std::error_code ignored;
    if (uses_state(model) && !fs::exists(record_file(state, model.name), ignored)) {
      names.push_back(model.name);
    }
  }
  return names;
}

Result<Garbage> collect_garbage(const GarbageOrder& order) {
  std::error_code status;
  if (!fs::exists(order.state, status)) return Garbage();
  TRY(const Fd still, hold_still(order.state));
  return Collector(order).run();
}

}  // namespace omni
