#include "provision/version.h"

#include <fmt/format.h>

#include <vector>

#include "config/model_files.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

// Path in the folder → digest, sorted by path.
Result<std::map<fs::path, std::string>> digest_folder(
    const fs::path& folder, const std::map<fs::path, std::string>& left_out, FileDigests& digests) {
  std::map<fs::path, std::string> files;
  Result<void> read;
  const std::error_code status = walk_model_folder(folder, [&](const fs::directory_entry& entry) {
    std::error_code ignored;
    const bool counts = entry.is_regular_file(ignored) && !left_out.contains(entry.path()) &&
                        entry.path() != folder / "model.toml";  // what counts of it is in the spec
    if (!counts || !read.ok()) return;
    Result<std::string> digest = digests.of(entry.path());
    if (digest.ok()) {
      files.emplace(entry.path().lexically_relative(folder), *std::move(digest));
    } else {
      read = std::move(digest).error();
    }
  });
  if (status) return errno_error("cannot read " + folder.string(), status.value());
  CHECK(read);
  return files;
}

// What a process is started with. Names, scaling and times are not among it.
void add_spec(Sha256& hash, const ModelSpec& spec) {
  hash.field(to_string(spec.task));
  hash.field(fmt::format("{} cpus, {} at once, {}", spec.cpus, spec.concurrency,
                         spec.gpu_memory ? "on a GPU" : "on the host"));
  hash.field(fmt::format("{} variables", spec.env.size()));
  for (const auto& [name, value] : spec.env) {
    hash.field(name);
    hash.field(value);
  }
  std::vector<std::string> words;
  for (const WeightSpec& weight : spec.weights) {
    words.insert(words.end(), {weight.name, weight.source});
  }
  if (spec.command) {
    const CommandEngine& engine = *spec.command;
    words.insert(words.end(), engine.command.begin(), engine.command.end());
    words.insert(words.end(), {engine.ready_path, engine.served_name});
    // It may stand in the command or a variable: {memory}.
    words.push_back(std::to_string(spec.memory.value_or(Bytes()).count() >> 20));
  }
  if (spec.python) {
    const PythonEngine& engine = *spec.python;
    words.insert(words.end(), engine.preload.begin(), engine.preload.end());
    words.push_back(engine.handler);
  }
  hash.field(fmt::format("{} words", words.size()));
  for (const std::string& word : words) hash.field(word);
}

}  // namespace

Result<std::string> version_of(const ModelSpec& spec, const std::string& environment_hash,
                               const std::map<fs::path, std::string>& weights,
                               FileDigests& digests) {
  TRY(const auto files, digest_folder(spec.dir, weights, digests));
  Sha256 hash;
  hash.field("version 2");
  add_spec(hash, spec);
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
