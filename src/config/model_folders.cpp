// Folders of models: which there are, and names that two of them claim.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "config/model_spec.h"

namespace omni {
namespace {

Result<std::vector<std::string>> folders_with_specs(const std::filesystem::path& root) {
  std::vector<std::string> names;
  std::error_code status;
  std::filesystem::directory_iterator entry(root, status);
  if (status == std::errc::no_such_file_or_directory) return names;
  for (; !status && entry != std::filesystem::directory_iterator(); entry.increment(status)) {
    std::string name = entry->path().filename();
    if (name.starts_with('.')) continue;
    std::error_code ignored;
    if (std::filesystem::exists(entry->path() / "model.toml", ignored)) {
      names.push_back(std::move(name));
    }
  }
  if (status) return errno_error("cannot read models from " + root.string(), status.value());
  std::sort(names.begin(), names.end());
  return names;
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
    for (const std::string& name : names) folders.push_back({name, load_model_spec(root / name)});
  }
  refuse_shared_names(folders);
  return folders;
}

}  // namespace omni
