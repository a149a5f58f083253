#include "provision/version.h"

#include <fmt/format.h>

namespace omni {
namespace {

namespace fs = std::filesystem;

// Path in the folder → digest, sorted by path.
Result<std::map<fs::path, std::string>> digest_folder(
    const fs::path& folder, const std::map<fs::path, std::string>& left_out, FileDigests& digests) {
  std::map<fs::path, std::string> files;
  std::error_code status;
  fs::recursive_directory_iterator entry(folder, status);
  for (; !status && entry != fs::recursive_directory_iterator(); entry.increment(status)) {
    const std::string name = entry->path().filename();
    if (name.starts_with('.') || name == "__pycache__") {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    if (!entry->is_regular_file(ignored) || left_out.contains(entry->path())) continue;
    TRY(std::string digest, digests.of(entry->path()));
    files.emplace(entry->path().lexically_relative(folder), std::move(digest));
  }
  if (status) return errno_error("cannot read " + folder.string(), status.value());
  return files;
}

}  // namespace

Result<std::string> version_of(const ModelSpec& spec, const std::string& environment_hash,
                               const std::map<fs::path, std::string>& weights,
                               FileDigests& digests) {
  TRY(const auto files, digest_folder(spec.dir, weights, digests));
  Sha256 hash;
  hash.field("version 1");
  hash.field(environment_hash);
  hash.field(std::to_string(files.size()));
  for (const auto& [path, digest] : files) {
    hash.field(path.string());
    hash.field(digest);
  }
  for (const auto& [path, identity] : weights) hash.field(identity);
  return hash.finish();
}

}  // namespace omni
