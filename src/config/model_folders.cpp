// Folders of models: which there are, and names that two of them claim.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "config/model_files.h"
#include "config/model_spec.h"

namespace omni {
namespace {

// Also by a link that leads nowhere, and where nobody may look: reading it then says what is wrong.
bool may_hold_spec(const std::filesystem::path& folder) {
  std::error_code failure;
  const auto status = std::filesystem::symlink_status(folder / "model.toml", failure);
  return std::filesystem::exists(status) || failure == std::errc::permission_denied;
}

Result<std::vector<std::string>> folders_with_specs(const std::filesystem::path& root) {
  std::vector<std::string> names;
  std::error_code status;
  std::filesystem::directory_iterator entry(root, status);
  if (status == std::errc::no_such_file_or_directory) return names;
  for (; !status && entry != std::filesystem::directory_iterator(); entry.increment(status)) {
    std::string name = entry->path().filename();
    if (name.starts_with('.')) continue;
    if (may_hold_spec(entry->path())) names.push_back(std::move(name));
  }
  if (status) return errno_error("cannot read models from " + root.string(), status.value());
  std::sort(names.begin(), names.end());
  return names;
}

// Whole 64-bit words in, one out (FNV-1a's step, word by word).
class Fingerprint {
 public:
  void add(std::uint64_t word) { state_ = (state_ ^ word) * 0x100000001B3u; }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<unsigned char>(c));
    add(text.size());
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

// Files up to this size count by their content, so that one that is written anew as it was is not
// an edit; larger ones, weights, by their inode and times.
constexpr off_t kReadWhole = 256 << 10;

void add_file(Fingerprint& print, const std::filesystem::path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  print.add(path.string());
  if (info.st_size <= kReadWhole) {
    const Result<std::string> content = read_file(path);
    print.add(content.ok() ? *content : content.error().message);
    return;
  }
  print.add(static_cast<std::uint64_t>(info.st_size));
  print.add(info.st_ino);
  for (const timespec& time : {info.st_mtim, info.st_ctim}) {
    print.add(static_cast<std::uint64_t>(time.tv_sec));
    print.add(static_cast<std::uint64_t>(time.tv_nsec));
  }
}

std::uint64_t fingerprint_of(const std::filesystem::path& folder) {
  // Sorted, since a directory may list itself in another order each time.
  std::set<std::filesystem::path> found;
  const std::error_code status =
      walk_model_folder(folder, [&found](const auto& entry) { found.insert(entry.path()); });
  Fingerprint print;
  print.add(static_cast<std::uint64_t>(status.value()));
  for (const std::filesystem::path& path : found) add_file(print, path);
  return print.value();
}

// Every name means one model. A model's own name wins over an alias; of two equal names or aliases
// the first keeps it: roots in their order, then models by name.
void refuse_shared_names(std::vector<ModelFolder>& folders) {
  std::map<std::string, std::filesystem::path> owners;
  auto refuse = [](ModelFolder& folder, std::string_view key, std::string_view name,
                   const std::filesystem::path& owner) {
    const std::filesystem::path file = folder.spec->dir / "model.toml";
    folder.spec = Error{ErrorCode::invalid_config,
                        fmt::format("{}:1: {}: \"{}\" is already the name of the model in {}",
                                    file.string(), key, name, owner.string())};
  };
  for (ModelFolder& folder : folders) {
    if (!folder.spec.ok()) continue;
    const auto [owner, is_new] = owners.emplace(folder.name, folder.spec->dir);
    if (!is_new) refuse(folder, "(folder name)", folder.name, owner->second);
  }
  for (ModelFolder& folder : folders) {
    if (!folder.spec.ok()) continue;
    const std::vector<std::string> aliases = folder.spec->aliases;
    for (const std::string& alias : aliases) {
      const auto owner = owners.find(alias);
      if (owner == owners.end()) continue;
      refuse(folder, "aliases", alias, owner->second);
      break;
    }
    if (!folder.spec.ok()) continue;
    for (const std::string& alias : aliases) owners.emplace(alias, folder.spec->dir);
  }
}

}  // namespace

Result<std::vector<ModelFolder>> load_model_folders(const std::filesystem::path& root) {
  return load_model_folders(std::vector<std::filesystem::path>{root});
}

Result<std::vector<ModelFolder>> load_model_folders(
    const std::vector<std::filesystem::path>& roots) {
  std::vector<ModelFolder> folders;
  for (const std::filesystem::path& root : roots) {
    TRY(const std::vector<std::string> names, folders_with_specs(root));
    for (const std::string& name : names) {
      // Before the spec is read: what changes meanwhile is seen by the next look.
      const std::uint64_t fingerprint = fingerprint_of(root / name);
      // Shown in JSON, whatever bytes it is made of.
      folders.push_back({to_utf8(name), load_model_spec(root / name), fingerprint});
    }
  }
  refuse_shared_names(folders);
  return folders;
}

}  // namespace omni
